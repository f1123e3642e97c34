from __future__ import annotations

from foretell.service.engine.told import NOTHING, Told, updated


def told(**report: str) -> Told:
    return Told(ready=True, report=report, pins={}, slots={})


def test_what_is_told_first_keeps_its_order() -> None:
    names = [f"m{number}" for number in range(20)]
    changes = told(**dict.fromkeys(names, "ready")).since(NOTHING)
    assert [*updated({}, changes["report"])] == names


def test_only_what_differs_is_told() -> None:
    before, now = told(a="ready", b="ready", c="ready"), told(a="ready", b="failed", d="ready")
    assert now.since(before)["report"] == {"b": "failed", "c": None, "d": "ready"}
    assert updated(before.report, now.since(before)["report"]) == now.report
