from __future__ import annotations

from copy import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from service.cuda.gpu import Gpu
from service.cuda.session import CudaSession
from service.errors import ModelFailedError
from service.session import Shape
from tests.service.cuda.fake import CUDA, MODULE, FakeGraph, expected, history

SHAPES: dict[str, Shape] = {"history": (None, 4, 2)}


def make(*graphs: FakeGraph, buckets: bool = True) -> CudaSession:
    gpus = [
        Gpu(
            MODULE,
            graph,
            number,
            inputs=SHAPES,
            max_batch=4,
            # A device that is lost is so for every session.
            reopen=partial(copy, graph) if buckets else None,
        )
        for number, graph in enumerate(graphs)
    ]
    return CudaSession(
        gpus, Path("g"), provider=CUDA, inputs=SHAPES, outputs=("forecast",), buckets=buckets
    )


def test_every_worker_has_a_gpu_of_its_own() -> None:
    graphs = [FakeGraph(), FakeGraph()]
    session = make(*graphs)
    session.warm(0)
    session.warm(1)
    feeds = history(2)
    np.testing.assert_array_equal(session.run(feeds, 1)["forecast"], expected(feeds))
    assert [len(graph.replayed) for graph in graphs] == [3, 4]


def test_without_buckets_batches_have_any_size() -> None:
    graph = FakeGraph()
    session = make(graph, buckets=False)
    session.warm(0)
    feeds = history(9)
    np.testing.assert_array_equal(session.run(feeds)["forecast"], expected(feeds))
    assert (graph.plain, graph.replayed) == ([9], [])


@pytest.mark.parametrize(
    ("message", "fatal"),
    [
        ("CUDA failure 700: an illegal memory access was encountered", True),
        ("CUDA failure 2: out of memory", False),
        ("Non-zero status code returned while running TopK", False),
    ],
)
def test_a_lost_device_is_told_from_a_bad_run(message: str, fatal: bool) -> None:
    graph = FakeGraph()
    session = make(graph)
    session.warm(0)
    graph.breaks = RuntimeError(message)
    with pytest.raises(ModelFailedError) as error:
        session.run(history(1))
    assert error.value.fatal is fatal
    assert error.value.__cause__ is graph.breaks


def test_a_graph_that_does_not_even_warm_up() -> None:
    graph = FakeGraph()
    graph.breaks = RuntimeError("CUDA failure 719")
    with pytest.raises(ModelFailedError) as error:
        make(graph).warm(0)
    assert error.value.fatal


def test_stop() -> None:
    session = make(FakeGraph(), FakeGraph())
    session.warm(1)
    session.stop()
    with pytest.raises(ModelFailedError):
        session.run(history(1), 1)
