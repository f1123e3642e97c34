from __future__ import annotations

from pathlib import Path

import pytest

from bench import earlier
from bench.serving.contenders import ROOT
from bench.sizes import QUICK
from foretell.service.engine.runtime import Runtime


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return earlier.export(ROOT, QUICK[::-1], tmp_path_factory.mktemp("exported") / "graphs")


def test_two_versions_are_timed_with_every_batch(
    graphs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "BATCHES", (1, 2))
    sessions = [Runtime("cpu").open(graphs[1]) for _ in range(2)]
    found = earlier.compare(QUICK[0], *sessions, 0.1)
    assert found.ratios.keys() == {1, 2}
    assert all(ratio > 0 for ratio in found.ratios.values())
    text = earlier.report([earlier.Finding("a", {1: 0.5, 2: 1.25})])
    assert "| model | batch 1 | batch 2 |" in text
    assert "| a | 0.500 | 1.250 |" in text


def test_every_model_is_exported_by_its_name(graphs: list[Path]) -> None:
    inputs = [set(Runtime("cpu").open(graph).inputs) for graph in graphs]
    assert inputs[1] == {"history"} < inputs[0]
