"""Sessions on the stand-in: their calls, and errors of these calls."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from foretell.bundle.bounds import Limits
from foretell.bundle.scaler import Scaler
from foretell.export.graphs import FILES, trace
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from tests.checkpoints import CONFIGS, randomised
from tests.support.stand_in.log import forbidden, read
from tests.support.stand_in.machine import Machine

Graphs = dict[str, list[Path]]


@pytest.fixture(scope="module")
def graphs(bundles: dict[str, Path]) -> Graphs:
    """Both graphs of a small model of each architecture."""
    return {name: [folder / file for file in FILES.values()] for name, folder in bundles.items()}


def run(machine: Machine, name: str, *arguments: object, **options: Any) -> Any:
    return json.loads(machine.run("tests.gpu.sessions", name, *arguments, **options))


@pytest.mark.parametrize("windows", [1, 5, 128])
@pytest.mark.parametrize("name", CONFIGS)
def test_batch_takes_the_fewest_calls(
    stand_in: Machine, graphs: Graphs, tmp_path: Path, name: str, windows: int
) -> None:
    log, times = tmp_path / "log", 20
    counts = run(stand_in, "replay", graphs[name][0], windows, times, log=log)
    one = ["memcpy-async"] * counts["inputs"] + ["replay"] + ["memcpy-async"] * counts["outputs"]
    calls = [call.name for call in read(log)]
    assert calls[-times * len(one) :] == one * times
    # All calls are on the session's own stream.
    streams = {call.about for call in read(log)[-times * len(one) :] if call.name != "replay"}
    assert len(streams) == 1


def test_bounds_take_no_more_calls(stand_in: Machine, tmp_path: Path) -> None:
    model = randomised(CONFIGS["patchtst"])
    channels = model.config.channels
    within = Limits(np.zeros(channels), np.full(channels, 5.0))
    scaler = Scaler(mean=(0.0,) * channels, std=(1.0,) * channels)
    form = ServingForm(inference_form(model), scaler, "forecast", within)
    graph, log = tmp_path / "bounded.onnx", tmp_path / "log"
    traced = trace(form)
    assert {"Max", "Min"} <= {node.op_type for node in traced.graph.node}
    onnx.save(traced, graph)
    run(stand_in, "replay", graph, 5, 20, log=log)
    calls = read(log)
    assert [call.name for call in calls][-60:] == ["memcpy-async", "replay", "memcpy-async"] * 20
    assert forbidden(calls) == []


def test_gpu_memory_is_constant_and_freed(stand_in: Machine, graphs: Graphs) -> None:
    paths = [path for both in graphs.values() for path in both]
    before, opened, replayed, closed = run(stand_in, "memory", *paths)
    assert opened - before > 100
    assert replayed - opened < 0.01 * opened
    assert closed - before < 0.05 * (opened - before)


@pytest.mark.parametrize("count", [2, 4])
def test_gpus_capture_one_after_the_other_while_others_run(
    stand_in: Machine, graphs: Graphs, tmp_path: Path, count: int
) -> None:
    machine, log = Machine(stand_in.folder, count), tmp_path / "log"
    paths = [path for both in graphs.values() for path in both]
    assert run(machine, "captures", *paths, log=log) == {
        "errors": [],
        "captured": [True] * len(paths),
    }
    calls = read(log)
    assert forbidden(calls) == []
    inside = 0
    for call in calls:
        inside += {"begin-capture": 1, "end-capture": -1}.get(call.name, 0)
        assert inside <= 1
    captured = Counter(call.device for call in calls if call.name == "end-capture")
    assert captured == dict.fromkeys(range(count), 8 * len(paths))


@pytest.mark.parametrize(
    ("choice", "count", "found"),
    [
        ("cuda", 1, {"provider": "CUDAExecutionProvider", "workers": 1}),
        ("auto", 3, {"provider": "CUDAExecutionProvider", "workers": 3}),
        ("cpu", 2, {"provider": "CPUExecutionProvider", "workers": 8}),
        ("auto", 0, {"provider": "CPUExecutionProvider", "workers": 8}),
    ],
)
def test_runtime_finds_devices(
    stand_in: Machine, choice: str, count: int, found: dict[str, Any]
) -> None:
    assert run(Machine(stand_in.folder, count), "devices", choice) == found


def test_missing_library_is_named(
    stand_in: Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a host with incomplete wheels."""
    folder = tmp_path / "partly"
    folder.mkdir()
    (folder / "venv").symlink_to(stand_in.folder / "venv")
    (folder / "lib").mkdir()
    for library in (stand_in.folder / "lib").iterdir():
        if not library.name.startswith("libcublas."):
            (folder / "lib" / library.name).symlink_to(library)
    output = run(Machine(folder), "devices", "auto")
    assert output["provider"] == "CPUExecutionProvider"
    assert "a library of CUDA is missing: libcublas.so.13: cannot open" in capfd.readouterr().err


def test_graphs_load_only_the_libraries_they_need(
    stand_in: Machine, graphs: Graphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_DEBUG", "libs")
    monkeypatch.setenv("LD_DEBUG_OUTPUT", str(tmp_path / "linker"))
    paths = [path for both in graphs.values() for path in both]
    lines = stand_in.run("tests.support.stand_in.graphs", *paths).splitlines()
    assert all(json.loads(line)["captured"] for line in lines)
    looked = "".join(file.read_text() for file in tmp_path.glob("linker.*"))
    assert "libcublasLt.so.13" in looked
    for library in ("cudnn", "cufft", "nvrtc"):
        assert library not in looked
