from __future__ import annotations

from pathlib import Path

import pytest

from foretell.service.engine.limits import usable_cpus


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("content", "cpus"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("250000 100000\n", 3),
        ("10000 100000\n", 1),
        ("6400000 100000\n", 8),
        ("nonsense", 8),
    ],
)
def test_the_quota_of_version_2(tmp_path: Path, content: str, cpus: int) -> None:
    (tmp_path / "cpu.max").write_text(content)
    assert usable_cpus(tmp_path) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1\n", 8), ("150000\n", 2)])
def test_the_quota_of_version_1(tmp_path: Path, quota: str, cpus: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path) == cpus


def test_without_control_groups(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == 8
