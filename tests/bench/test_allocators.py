from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import allocators
from bench.allocators import WAYS, Outcome, report
from foretell.bundle import layout
from tests.support.bundles import Spec, write_bundle


@pytest.mark.parametrize("way", WAYS)
def test_every_way_runs_the_models(tmp_path: Path, way: str) -> None:
    folder = write_bundle(tmp_path, Spec(context=512))
    for name in (layout.FORECAST_GRAPH, layout.WEIGHTS):
        shutil.copy(folder / name, tmp_path)
    found = allocators._in_process(way, tmp_path)
    assert found.milliseconds > 0
    assert found.most + 1 >= max(found.half, found.end, found.closed) > 0


def test_the_report_has_the_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "machine", lambda *names: "Machine: some.")
    outcomes = [Outcome(size, 100 * size, 5, 6, 7, 8) for size in (1.0, 9.0, 2.0)]
    text = report({"malloc": outcomes}, models=3)
    assert "runs 3 models" in text
    assert "| malloc | 2.00 | 200 | 5 | 6 | 7 | 8 |" in text
