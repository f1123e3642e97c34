from __future__ import annotations

from pathlib import Path

from foretell.service.supervision.member import Member


def test_the_processes_share_folders(tmp_path: Path) -> None:
    one, other = Member(tmp_path, 0), Member(tmp_path, 1)
    assert one.metrics == other.metrics
    assert one.state == other.state
    assert one.readiness != other.readiness
    assert one.readiness.parent == other.readiness.parent
    assert one.statistics != other.statistics
    assert one.statistics.parent == other.statistics.parent
    for folder in (one.metrics, one.state, one.readiness.parent, one.statistics.parent):
        assert folder.is_dir()


def test_of_one_that_ended_counts_stay(tmp_path: Path) -> None:
    ended, alive = Member(tmp_path, 0), Member(tmp_path, 1)
    for slot in (0, 1):
        for kind in ("counter", "histogram", "gauge_livesum"):
            (ended.metrics / f"{kind}_{slot}.db").touch()
    for member in (ended, alive):
        member.readiness.touch()
        member.statistics.touch()
    ended.forget()
    ended.forget()
    left = {file.name for file in ended.metrics.iterdir()}
    assert left == {
        *("counter_0.db", "histogram_0.db"),
        *("counter_1.db", "histogram_1.db", "gauge_livesum_1.db"),
    }
    assert not ended.readiness.exists()
    assert ended.statistics.exists()
    assert alive.readiness.exists()
