from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.service.cuda.gpu import CudaSession, Gpu
from foretell.service.errors import ModelFailedError
from tests.service.cuda.fake import CUDA, MODULE, FakeGraph, FakeLibrary, device, expected, history


def make(*graphs: FakeGraph, library: FakeLibrary | None = None) -> CudaSession:
    gpus = [
        Gpu(
            MODULE,
            device(number, library),
            lambda number, stream, captures: graphs[number],
            max_batch=4,
        )
        for number in range(len(graphs))
    ]
    return CudaSession(gpus, Path("g"))


def test_every_worker_has_a_gpu_of_its_own() -> None:
    graphs = [FakeGraph(), FakeGraph()]
    session = make(*graphs)
    session.warm(0)
    session.warm(1)
    feeds = history(2)
    np.testing.assert_array_equal(session.run(feeds, 1)["forecast"], expected(feeds))
    assert [len(graph.replayed) for graph in graphs] == [3, 4]


def test_it_knows_the_graph() -> None:
    session = make(FakeGraph())
    assert session.inputs == {"history": (None, 4, 2)}
    assert session.outputs == ("forecast", "lags")
    assert (session.graph, session.provider, session.captures) == (Path("g"), CUDA, True)


def test_it_captures_if_all_do() -> None:
    session = make(FakeGraph(), FakeGraph())
    session._gpus[1].captures = False
    assert not session.captures


def test_stop_and_close_are_for_all() -> None:
    library = FakeLibrary()
    session = make(FakeGraph(), FakeGraph(), library=library)
    session.stop()
    for worker in (0, 1):
        session._gpus[worker].captures = False
        with pytest.raises(ModelFailedError):
            session.run(history(1), worker)
    session.close()
    assert not library.held
