from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from foretell.service.engine.selftest import Health
from foretell.service.errors import ModelFailedError


class SelfTest:
    """A self-test that passes or fails as told.

    Attributes:
        outcomes: What is to come; `None` passes. The last one is repeated.
        ran: Released once for every run.
    """

    def __init__(self, *outcomes: str | None) -> None:
        self.outcomes = list(outcomes)
        self.ran = threading.Semaphore(0)
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.ran.release()
        if outcome is not None:
            raise ModelFailedError(outcome)

    def finished(self) -> None:
        """Wait for the thread of the tests to end."""
        assert self.ran.acquire(timeout=30)
        assert self.thread is not None
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def made() -> Iterator[list[Health]]:
    made: list[Health] = []
    yield made
    for health in made:
        health.close()


def test_histories_that_fail_do_not_take_a_model_down(made: list[Health]) -> None:
    test = SelfTest(None)
    health = Health("one@1", test, lambda: None, first_seconds=0)
    for _ in range(3):
        health.failed()
    test.finished()
    assert health.failure is None


def test_failures_between_successes_are_no_suspicion() -> None:
    test = SelfTest("never asked")
    health = Health("one@1", test, lambda: None)
    for _ in range(10):
        health.failed()
        health.failed()
        health.succeeded()
    assert test.thread is None


def test_a_model_that_fails_its_test_is_down_until_it_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    test = SelfTest("wrong forecasts", "still wrong", None)
    told: list[str | None] = []
    health = Health("one@1", test, lambda: told.append(health.failure), first_seconds=0)
    for _ in range(5):
        health.failed()
    test.finished()
    assert health.failure is None
    said = [record.getMessage() for record in caplog.records]
    assert said == ["one@1 has failed: wrong forecasts", "one@1 works again"]
    assert told == ["wrong forecasts", "still wrong", None]


def test_the_reason_is_told_while_it_is_down(made: list[Health]) -> None:
    test = SelfTest("wrong forecasts")
    health = Health("one@1", test, lambda: None, first_seconds=3600)
    made.append(health)
    for _ in range(3):
        health.failed()
    assert test.ran.acquire(timeout=30)
    health.close()
    assert test.thread is not None
    test.thread.join(30)
    assert health.failure == "wrong forecasts"


def test_it_is_tested_until_a_shortage_is_over() -> None:
    test = SelfTest(*100 * ["out of memory"], None)
    health = Health("one@1", test, lambda: None, first_seconds=0)
    for _ in range(3):
        health.failed()
    test.finished()
    assert health.failure is None


def test_tests_are_a_minute_apart_at_most() -> None:
    waits: list[float] = []

    class Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) > 12

    test = SelfTest("out of memory")
    health = Health("one@1", test, lambda: None)
    health._closed = Closed()
    for _ in range(3):
        health.failed()
    test.finished()
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]


def test_without_a_thread_the_next_failure_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    test = SelfTest("broken", None)
    health = Health("one@1", test, lambda: None, first_seconds=0)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            health.failed()
    assert "one@1 cannot be tested: can't start new thread" in caplog.text
    assert health.failure is None
    health.failed()
    test.finished()
    assert "one@1 works again" in caplog.text
    assert health.failure is None
