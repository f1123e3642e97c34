from __future__ import annotations

from typing import cast

import pytest

from foretell.service.engine.process import Watch
from foretell.service.engine.repository import Repository


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
