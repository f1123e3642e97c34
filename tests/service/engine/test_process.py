from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from foretell.service.engine.process import Watch, load
from foretell.service.engine.repository import Repository
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.service.bundles import Spec, write_bundle


class Losing:
    """A repository as far as it is watched."""

    def __init__(self) -> None:
        self.lost: dict[int, str] = {}
        self.dead = False
        self.busy_seconds = 0.0


def watch(repository: Losing) -> Watch:
    return Watch(cast("Repository", repository), grace_seconds=30, stuck_seconds=300)


@pytest.mark.parametrize(("others", "seconds"), [(True, 30), (False, 0)])
def test_it_is_over_for_a_lost_gpu(
    caplog: pytest.LogCaptureFixture, others: bool, seconds: int
) -> None:
    repository = Losing()
    watched = watch(repository)
    assert not watched.is_over(100.0)
    repository.lost, repository.dead = {0: "GPU 0 is lost"}, not others
    # Load balancers get to see that it is not ready, while others answer.
    for now in (101.0, 100.9 + seconds):
        assert watched.is_over(now) == (not others)
    assert watched.is_over(101.0 + seconds)
    assert caplog.messages == [f"ends in {seconds} s with status 75, to be replaced"]


def test_a_worker_that_does_not_come_back() -> None:
    repository = Losing()
    watched = watch(repository)
    repository.busy_seconds = 299.0
    assert not watched.stuck
    repository.busy_seconds = 301.0
    assert watched.stuck


def test_what_is_to_be_kept_and_is_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_bundle(tmp_path, Spec())
    keep = ("repeat", "repeat@1", "repeat@2", "repaet")
    settings = Settings(models=tmp_path, device="cpu", load="on-demand", max_loaded=1, keep=keep)
    load(settings, Metrics()).close(5)
    assert [each for each in caplog.messages if "KEEP" in each] == [
        f"FORETELL_KEEP: {name} is not in the repository" for name in ("repeat@2", "repaet")
    ]
