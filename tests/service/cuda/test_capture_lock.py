from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from foretell.service.cuda.device import CaptureLock


class Holder:
    """A thread that enters, tells so, and leaves when told to."""

    def __init__(self, enter: Callable[[], AbstractContextManager[None]]) -> None:
        self._enter = enter
        self.inside = threading.Event()
        self.leave = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        with self._enter():
            self.inside.set()
            assert self.leave.wait(60)

    def end(self) -> None:
        self.leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def holding(*enters: Callable[[], AbstractContextManager[None]]) -> Iterator[list[Holder]]:
    holders = [Holder(enter) for enter in enters]
    yield holders
    for holder in holders:
        holder.end()


@pytest.fixture
def lock() -> CaptureLock:
    return CaptureLock()


def test_calls_do_not_wait_for_each_other(lock: CaptureLock) -> None:
    with holding(lock.call, lock.call) as holders:
        assert all(holder.inside.wait(60) for holder in holders)


@pytest.mark.parametrize(
    ("first", "second"), [("capture", "capture"), ("capture", "call"), ("call", "capture")]
)
def test_a_capture_is_alone(lock: CaptureLock, first: str, second: str) -> None:
    with holding(getattr(lock, first)) as (inside,):
        assert inside.inside.wait(60)
        with holding(getattr(lock, second)) as (outside,):
            assert not outside.inside.wait(0.05)
            inside.leave.set()
            assert outside.inside.wait(60)


def test_a_capture_that_waits_comes_before_later_calls(lock: CaptureLock) -> None:
    with holding(lock.call) as (early,):
        assert early.inside.wait(60)
        with holding(lock.capture) as (capture,):
            assert not capture.inside.wait(0.05)
            with holding(lock.call) as (late,):
                assert not late.inside.wait(0.05)
                early.leave.set()
                assert capture.inside.wait(60)
                assert not late.inside.wait(0.05)
                capture.leave.set()
                assert late.inside.wait(60)


@pytest.mark.parametrize("enter", ["capture", "call"])
def test_an_error_inside_leaves_the_way_free(lock: CaptureLock, enter: str) -> None:
    with pytest.raises(ValueError, match="inside"), getattr(lock, enter)():
        raise ValueError("inside")
    with lock.capture():
        pass
    with lock.call():
        pass
