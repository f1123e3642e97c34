from __future__ import annotations

from pathlib import Path

import pytest

from bench import earlier
from bench.serving.contenders import ROOT
from bench.sizes import QUICK
from foretell.service.engine.runtime import Runtime


def test_two_versions_are_timed_with_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "BATCHES", (1, 2))
    (graph,) = earlier.export(ROOT, QUICK[:1], tmp_path / "graphs")
    sessions = [Runtime("cpu").open(graph) for _ in range(2)]
    found = earlier.compare(QUICK[0], *sessions, 0.1)
    assert found.ratios.keys() == {1, 2}
    assert all(ratio > 0 for ratio in found.ratios.values())
    text = earlier.report([earlier.Finding("a", {1: 0.5, 2: 1.25})])
    assert "| model | batch 1 | batch 2 |" in text
    assert "| a | 0.500 | 1.250 |" in text


def test_every_model_is_exported_by_its_name(tmp_path: Path) -> None:
    graphs = earlier.export(ROOT, QUICK[::-1], tmp_path / "graphs")
    inputs = [set(Runtime("cpu").open(graph).inputs) for graph in graphs]
    assert inputs[1] == {"history"} < inputs[0]
