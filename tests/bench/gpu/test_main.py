"""The CPU stands in for the GPU, and nothing is served."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import __main__ as module
from bench.gpu import check, traffic
from bench.gpu import report as report_module
from bench.gpu.__main__ import examine, main
from bench.gpu.faults import FaultError
from bench.gpu.report import CPU, PLAIN, REPLAY, Report
from bench.gpu.subjects import Subject, subjects
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

SERVED = {"rate": 1.0, "p50": 1.0, "p99": 1.0, "windows": 1.0, "failed": 0}


class Captures:
    """A runtime whose sessions say that they replay CUDA graphs.

    Args:
        captures: What they say.
    """

    on_gpu = True

    def __init__(self, captures: bool = True) -> None:
        self._runtime = Runtime("cpu")
        self._captures = captures

    def workers(self, threads: int) -> int:
        return 1

    def open(self, graph: Path, *, max_batch: int | None = None) -> Session:
        session = self._runtime.open(graph, max_batch=max_batch)
        session.captures = self._captures  # type: ignore[attr-defined]
        return session


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LARGEST", 3)
    monkeypatch.setattr(module, "_WORKERS", (1, 2))
    # The version of onnxruntime-gpu is not to be had here.
    monkeypatch.setattr(report_module, "machine", lambda *_: "Machine.")
    monkeypatch.setattr(module, "come_and_go", lambda found, folder: {"200": len(found)})
    monkeypatch.setattr(module, "rate", lambda *_, **__: SERVED)


@pytest.fixture
def found(gpu_folder: Path, tmp_path: Path) -> list[Subject]:
    """PatchTST, two of which a test may break."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "references").symlink_to(gpu_folder / "references")
    for name in ("patchtst", "patchtst-float16"):
        shutil.copytree(gpu_folder / "repository" / name, tmp_path / "repository" / name)
    return subjects(tmp_path)


def run(found: list[Subject], gpu: Captures | None = None) -> tuple[Report, list[str]]:
    report = Report(1)
    said = examine(report, found, gpu or Captures(), quick=True, seconds=0.001)  # type: ignore[arg-type]
    return report, list(said)


def test_all_that_is_looked_at(found: list[Subject]) -> None:
    report, said = run(found)
    assert said == [
        "patchtst: passed",
        "patchtst-float16: passed",
        "models come and go: {'200': 2}",
        "patchtst: timed",
        "patchtst-float16: timed",
        "patchtst: served",
    ]
    assert set(report.seconds["patchtst"][1]) == {REPLAY, PLAIN, CPU}
    assert set(report.seconds["patchtst-float16"][2]) == {REPLAY, PLAIN}
    assert report.rates == {"patchtst": {"one process": SERVED, "2 HTTP workers": SERVED}}
    assert report.passed


@pytest.mark.parametrize("broken", [0, 1])
def test_a_broken_bundle_holds_nothing_else_up(found: list[Subject], broken: int) -> None:
    (found[broken].folder / "forecast.onnx").write_bytes(b"no graph")
    report, said = run(found)
    assert "onnxruntime refuses it" in said[broken]
    assert said[2] == "models come and go: {'200': 1}"
    assert said[3] == f"{found[1 - broken].name}: timed"
    assert list(report.seconds) == [found[1 - broken].name]
    assert not report.passed


def test_without_a_sound_bundle(found: list[Subject]) -> None:
    for subject in found:
        (subject.folder / "explain.onnx").unlink()
    report, _ = run(found)
    assert report.faults == ["models come and go: no bundle is left to serve"]


def test_what_fails_in_a_stage_is_told(
    found: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise FaultError("no\nserver")

    monkeypatch.setattr(module, "come_and_go", fail)
    monkeypatch.setattr(module, "rate", fail)
    monkeypatch.setattr(module, "interleaved_medians", fail)
    report, _ = run(found)
    assert report.faults == [
        "models come and go: no server",
        "patchtst, timed: no server",
        "patchtst-float16, timed: no server",
        "patchtst, one process: no server",
        "patchtst, 2 HTTP workers: no server",
    ]
    assert not report.passed


def test_times_of_what_replays_nothing_are_none(found: list[Subject]) -> None:
    with pytest.raises(FaultError, match="not every batch up to 2 can be captured"):
        module.measure(found[0], Captures(captures=False), Runtime("cpu"), [1, 2], 0.001)  # type: ignore[arg-type]


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, page: Path) -> int:
    shortest = ("--quick", "--seconds=0.001")
    monkeypatch.setattr(sys, "argv", ["gpu", str(folder), "--page", str(page), *shortest])
    monkeypatch.setattr(module, "Runtime", lambda device: Captures())
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_page_is_written_at_every_step(
    found: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[str] = []
    monkeypatch.setattr(module, "write_part", lambda name, text, page: pages.append(text))
    assert start(monkeypatch, tmp_path, tmp_path / "page") == 0
    assert len(pages) == 6
    assert "| patchtst | passed |" in pages[0]
    assert "patchtst-float16" not in pages[0]
    assert "| patchtst | one process |" in pages[-1]


def test_the_status_tells_a_fault(
    found: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found[0].folder / "forecast.onnx").write_bytes(b"no graph")
    assert start(monkeypatch, tmp_path, tmp_path / "page") == 1
    assert "onnxruntime refuses it" in (tmp_path / "page").read_text()


def test_nothing_to_look_at_is_another_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "repository").mkdir()
    assert start(monkeypatch, tmp_path, tmp_path / "page") == 2
    assert "gpu-check: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("all well", None),
        (
            "GPU 0: no CUDA graph of batches of 4 could be captured; runs go without: x",
            "batches of 4",
        ),
        ("GPU 0: runs go without CUDA graphs: y", "graphs: y"),
    ],
)
def test_a_server_that_does_not_capture_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, error: str | None
) -> None:
    @contextmanager
    def running(command: Any, ready: str, log: Path, *_: object) -> Iterator[None]:
        log.write_text(f"first\n{lines}\nlast\n")
        yield

    monkeypatch.setattr(traffic, "running", running)
    if error is None:
        with traffic.server(tmp_path, tmp_path / "log"):
            pass
    else:
        with pytest.raises(FaultError, match=error), traffic.server(tmp_path, tmp_path / "log"):
            pass
    with (
        pytest.raises(FaultError, match=r"(?s)too late; the server's log ends: first.*last"),
        traffic.server(tmp_path, tmp_path / "log"),
    ):
        raise subprocess.SubprocessError("too late")
