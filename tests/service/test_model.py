from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bundle import layout
from bundle.errors import BundleError
from bundle.manifest import Manifest
from service.errors import ModelFailedError, NotReadyError
from service.model import Model, attention_values
from service.runtime import Runtime
from service.session import Session
from tests.service.bundles import (
    Spec,
    lag_stage,
    rewrite_manifest,
    softmax_stage,
    write_bundle,
)

Open = Callable[[Path], Model]


def later() -> float:
    return time.monotonic() + 30


def test_forecasts_and_explains(open_model: Open, tmp_path: Path) -> None:
    spec = Spec(channels=("a", "b"), stages=(lag_stage(),))
    model = open_model(write_bundle(tmp_path, spec))
    history = np.random.default_rng(0).normal(size=(20, 8, 2)).astype(np.float32)
    for explain in (False, True):
        outputs = model.submit({"history": history}, explain=explain, deadline=later()).result(30)
        np.testing.assert_allclose(outputs["forecast"], spec.forecast(history), rtol=1e-6)
        assert explain == ("encoder.1.self.lags" in outputs)


def test_counts_what_the_attention_graph_returns() -> None:
    stages = (lag_stage(), softmax_stage(), softmax_stage(name="b.0", per_channel=True))
    manifest = Manifest.model_construct(channels=("a", "b"), attention=stages)
    assert attention_values(manifest) == 1 + 2 * 9 + 2 * 2 * 9
    assert attention_values(Manifest.model_construct(channels=("a",), attention=())) == 1


def test_a_closed_model_refuses(open_model: Open, tmp_path: Path) -> None:
    model = open_model(write_bundle(tmp_path, Spec()))
    model.close(5)
    with pytest.raises(NotReadyError):
        model.submit({"history": np.zeros((1, 8, 1), np.float32)}, explain=False, deadline=later())


def test_closing_stops_a_run_that_takes_too_long(
    open_model: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = open_model(write_bundle(tmp_path, Spec(burn=300)))
    running = model.submit(
        {"history": np.zeros((1, 8, 1), np.float32)}, explain=False, deadline=later()
    )
    while model.waiting:
        time.sleep(0.001)
    model.close(0)
    assert not any(thread.is_alive() for thread in model._batcher._threads)
    with pytest.raises(ModelFailedError):
        running.result(0)


@pytest.mark.parametrize(
    "file", [layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH, layout.WEIGHTS, layout.PROBES]
)
def test_a_changed_file_is_refused(open_model: Open, tmp_path: Path, file: str) -> None:
    folder = write_bundle(tmp_path, Spec())
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(BundleError, match=f"{file}: sha256 differs"):
        open_model(folder)


def test_a_file_without_a_sum_is_refused(open_model: Open, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path, Spec(changes={"files": {}}))
    with pytest.raises(BundleError, match=r"no checksum of forecast\.onnx"):
        open_model(folder)


def test_a_bundle_under_another_name_is_refused(open_model: Open, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path, Spec())
    with pytest.raises(BundleError, match="the manifest is of repeat version 1"):
        open_model(folder.rename(folder.parent / "2"))


def test_probes_that_come_out_different_are_refused(open_model: Open, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path, Spec())
    with np.load(folder / layout.PROBES) as probes:
        arrays = dict(probes)
    arrays["forecast"][2, 0, 0] += 0.01
    np.savez(folder / layout.PROBES, **arrays)
    rewrite_manifest(folder, Spec())
    with pytest.raises(BundleError, match=r"differ from the expected ones by 0\.0\d+, over"):
        open_model(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"[1, 2]"])
def test_probes_that_cannot_be_read_are_refused(
    open_model: Open, tmp_path: Path, content: bytes
) -> None:
    folder = write_bundle(tmp_path, Spec())
    (folder / layout.PROBES).write_bytes(content)
    rewrite_manifest(folder, Spec())
    with pytest.raises(BundleError, match=r"probes\.npz"):
        open_model(folder)


def test_a_graph_that_does_not_fit_the_manifest_is_refused(
    open_model: Open, tmp_path: Path
) -> None:
    folder = write_bundle(tmp_path, Spec(changes={"context": 9}))
    with pytest.raises(BundleError, match="its inputs are"):
        open_model(folder)


def test_a_broken_attention_graph_is_refused(open_model: Open, tmp_path: Path) -> None:
    spec = Spec(changes={"attention": (lag_stage(),)})
    folder = write_bundle(tmp_path, spec)
    with pytest.raises(BundleError, match=r"explain\.onnx: it has no output encoder\.1"):
        open_model(folder)
    (folder / layout.EXPLAIN_GRAPH).write_bytes(b"no graph")
    rewrite_manifest(folder, spec)
    with pytest.raises(BundleError, match=r"explain\.onnx: onnxruntime refuses it"):
        open_model(folder)


def test_an_attention_graph_that_breaks_later_fails_only_who_asks(
    open_model: Open, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path, Spec(stages=(lag_stage(),)))
    model = open_model(folder)
    (folder / layout.EXPLAIN_GRAPH).write_bytes(b"no graph")
    opened: list[str] = []
    open_session = runtime.open

    def count(graph: Path) -> Session:
        opened.append(graph.name)
        return open_session(graph)

    monkeypatch.setattr(runtime, "open", count)
    feeds = {"history": np.zeros((1, 8, 1), np.float32)}
    for _ in range(2):
        with pytest.raises(ModelFailedError) as failure:
            model.submit(feeds, explain=True, deadline=later()).result(30)
        assert "onnxruntime refuses it" in str(failure.value.__cause__)
    assert opened == [layout.EXPLAIN_GRAPH]
    model.submit(feeds, explain=False, deadline=later()).result(30)
