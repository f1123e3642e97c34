from __future__ import annotations

import pytest

from bench import soak
from bench.soak import Outcome, Traffic


def test_an_answer_that_no_request_may_get_is_kept() -> None:
    outcome = Outcome()
    outcome.add("good", b"HTTP/1.1 200 OK\r\n\r\n")
    outcome.add("refused", b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n")
    outcome.add("cut off", b"")
    assert outcome.wrong == []
    outcome.add("refused", b"HTTP/1.1 503 Service Unavailable\r\n\r\nretry-after:")
    outcome.add("refused", b"HTTP/1.1 500 Internal Server Error\r\nRetry-After: 1\r\n\r\n")
    assert len(outcome.wrong) == 2
    assert outcome.statuses["refused", 503] == 2


def test_a_seed_draws_the_same_requests() -> None:
    ones, others, different = (Traffic(seed) for seed in (1, 1, 2))
    drawn = [ones.draw()[:2] for _ in range(50)]
    assert drawn == [others.draw()[:2] for _ in range(50)]
    assert drawn != [different.draw()[:2] for _ in range(50)]
    assert {kind for kind, _ in drawn} == {"good", "refused", "cut off", "hostile"}


def test_a_moment_of_the_mix_gets_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "_IDLE_SECONDS", 0.0)
    outcome, before, after = soak.soak(3, warm_seconds=1)
    assert outcome.wrong == []
    assert outcome.statuses["good", 200] > 0
    assert outcome.statuses["refused", 422] > 0
    assert min(before, after) > 0
