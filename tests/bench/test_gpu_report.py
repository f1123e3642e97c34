from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from bench import gpu_report
from bench.gpu_report import BUFFERS, CPU, GRAPH, PLAIN, Finding, report


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_report, "machine", lambda *names: "Machine: some.")
    gpus = SimpleNamespace(stdout="H200, 580.65\nH200, 580.65\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: gpus)


def test_names_the_gpus_and_what_failed() -> None:
    text = report([Finding("demo@1", failure="it differs", seconds={1: {CPU: 0.001}})])
    assert "Machine: some. GPU: H200, 580.65; H200, 580.65." in text
    assert "| demo@1 | it differs | no | 0 |  | 0 |" in text
    assert "| demo@1 | 1 | 1.000 |  |" in text


def test_times_have_the_ratios_of_the_replay() -> None:
    seconds = {PLAIN: 0.004, BUFFERS: 0.003, GRAPH: 0.001}
    found = Finding(
        "demo@1, bfloat16",
        cuda_graphs=True,
        cpu_error=2e-6,
        ill_conditioned=3,
        seconds={8: seconds},
    )
    text = report([found, Finding("other@1", seconds={8: seconds | {CPU: 0.01}})])
    assert "| demo@1, bfloat16 | passed | yes | 0 | 2e-06 | 3 |" in text
    assert "| demo@1, bfloat16 | 8 | 4.000 | 3.000 | 1.000 |  | 4.00 | 3.00 |  |" in text
    assert "| other@1 | 8 | 4.000 | 3.000 | 1.000 | 10.000 | 4.00 | 3.00 | 10.00 |" in text


def test_without_nvidias_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", missing)
    assert "GPU: unknown (nvidia-smi is missing)." in report([])
