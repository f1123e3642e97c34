from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from bench.gpu import report as module
from bench.gpu.check import Finding
from bench.gpu.report import CPU, PLAIN, REPLAY, Report, render
from foretell.bundle.manifest import Check


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine", lambda *names: "Machine: some.")
    gpus = SimpleNamespace(stdout="H200, 580.65\nH200, 580.65\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: gpus)


def one(name: str, error: float, tolerance: float = 1e-5) -> Check:
    return Check(
        name=name, windows=64, max_error=error, median_error=error / 2, tolerance=tolerance
    )


CHECKS = [
    one("forecast.onnx, batch 1, natural windows", 2e-6),
    one("explain.onnx, forecast, natural windows", 3e-6),
    one("explain.onnx, encoder.0.self, natural windows", 7e-6),
    one("forecast.onnx, offset 10000 windows", 9e-4, 1e-3),
    one("share with other choices, natural windows", 0.03, 0.05),
]


def test_findings() -> None:
    found = Finding("demo-float16", replay_error=2e-8, checks=CHECKS)
    failed = Finding("other", faults=["it differs", "by much"])
    text = render(Report(2, findings=[found, failed]))
    assert "Machine: some. 2 GPU: H200, 580.65; H200, 580.65." in text
    assert "| demo-float16 | passed | 2e-08 | 3.0e-06 | 1.0e-05 | 3% |" in text
    assert "| other | it differs; by much |  |  |  |  |" in text


SERVED = {"rate": 12345.6, "p50": 3.21, "p99": 9.87, "windows": 17.54, "failed": 0}


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"findings": []}, False),
        ({"findings": [Finding("a"), Finding("b", faults=["it differs"])]}, False),
        ({"answers": {}}, False),
        ({"answers": {"200": 5, "503": 1}}, False),
        ({"answers": {"connection lost": 1}}, False),
        ({"rates": {"a": {"one process": {**SERVED, "failed": 1}}}}, False),
        ({"faults": ["a server did not start"]}, False),
    ],
)
def test_passed(changes: dict[str, Any], passed: bool) -> None:
    sound = {"findings": [Finding("a")], "answers": {"200": 5}, "rates": {"a": {"one": SERVED}}}
    assert Report(1, **{**sound, **changes}).passed is passed


def test_traffic() -> None:
    assert "answered 1,234 requests, and none failed." in render(Report(1, answers={"200": 1234}))
    text = render(Report(1, answers={"200": 7, "503": 2}))
    assert "answered 7 requests, and of these failed: {'503': 2}." in text


def test_times_and_rates() -> None:
    seconds = {"demo": {8: {REPLAY: 0.0005, PLAIN: 0.002}, 1: {REPLAY: 0.0001, CPU: 0.003}}}
    rates = {"demo": {"one process": SERVED}}
    text = render(Report(1, seconds=seconds, rates=rates, faults=["x"]))
    assert "| demo | 8 | 0.500 | 2.000 |  | 16,000 |" in text
    assert "| demo | 1 | 0.100 |  | 3.000 | 10,000 |" in text
    assert "| demo | one process | 12,346 | 3.2 | 9.9 | 17.5 | 0 |" in text
    assert "**Wrong**: x" in text
    assert "from 64 connections" in text


def test_without_nvidias_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", missing)
    assert "GPU: unknown (nvidia-smi is missing)." in render(Report(1))
