from __future__ import annotations

import pytest

from foretell.service.batching.room import Room
from foretell.service.errors import QueueFullError, TooLargeError


def drain() -> float:
    """Ten seconds until all that waits has run."""
    return 10.0


class Queue:
    """A room of 100 windows, of 10 bytes each, and what is in it."""

    def __init__(self, max_bytes: int = 10_000) -> None:
        self.room = Room(max_windows=100, max_bytes=max_bytes)
        self.now = 0.0

    def submit(self, windows: int) -> bool:
        try:
            self.room.admit(windows, 10 * windows, self.now, drain)
        except QueueFullError:
            return False
        self.room.windows += windows
        self.room.bytes += 10 * windows
        return True

    def retry_after(self, windows: int) -> int:
        with pytest.raises(QueueFullError) as full:
            self.room.admit(windows, 10 * windows, self.now, drain)
        return full.value.retry_after

    def ran(self, windows: int) -> None:
        self.room.windows -= windows
        self.room.bytes -= 10 * windows


def test_admits_what_fits_in_windows_and_bytes() -> None:
    queue = Queue(max_bytes=700)
    assert queue.submit(60)
    assert queue.submit(10)
    assert not queue.submit(1)
    with pytest.raises(QueueFullError, match="holds 700 bytes and 1 more do not fit: at most 700"):
        queue.room.check(drain)
    queue.ran(1)
    queue.room.check(drain)


def test_a_full_room_is_found_out_early() -> None:
    queue = Queue()
    assert queue.submit(99)
    queue.room.check(drain)
    assert queue.submit(1)
    with pytest.raises(QueueFullError, match="100 windows are waiting and 1 more do not fit"):
        queue.room.check(drain)


def test_says_when_what_is_in_the_way_has_run() -> None:
    queue = Queue()
    queue.submit(100)
    # Half of what takes ten seconds has to go.
    assert queue.retry_after(50) == 5
    assert queue.retry_after(100) == 10
    assert queue.retry_after(1) == 6, "after those fifty that are kept"


@pytest.mark.parametrize(("seconds", "said"), [(0.0, 1), (0.3, 1), (59.2, 60), (3600.0, 60)])
def test_says_so_in_whole_seconds_of_a_minute_at_most(seconds: float, said: int) -> None:
    room = Room(max_windows=4, max_bytes=1)
    room.windows = 4
    with pytest.raises(QueueFullError) as full:
        room.admit(4, 0, 0.0, lambda: seconds)
    assert full.value.retry_after == said


@pytest.mark.parametrize(("windows", "size"), [(101, 1), (1, 10_001)])
def test_what_never_fits_is_not_to_come_again(windows: int, size: int) -> None:
    with pytest.raises(TooLargeError):
        Queue().room.admit(windows, size, 0.0, drain)


def test_small_work_that_keeps_coming_does_not_shut_out_large_work() -> None:
    queue = Queue()
    while queue.submit(1):
        pass
    wait = queue.retry_after(50)
    for tenth in range(10 * wait):
        queue.now = tenth / 10
        queue.ran(min(1, queue.room.windows))
        while queue.submit(1):
            pass
        assert queue.room.windows >= 50, "nor is small work shut out"
    queue.now = wait + 0.5
    assert queue.submit(50)
    assert queue.room.windows <= 100


def test_room_is_not_kept_for_who_does_not_come() -> None:
    queue = Queue()
    queue.submit(100)
    wait = queue.retry_after(50)
    queue.ran(10)
    assert not queue.submit(1)
    queue.now = wait + 1.5
    assert not queue.submit(1)
    queue.now = wait + 2.5
    assert queue.submit(1)


def test_room_is_kept_of_bytes_too() -> None:
    queue = Queue(max_bytes=500)
    queue.submit(50)
    queue.retry_after(20)
    queue.ran(10)
    assert not queue.submit(1)
    queue.ran(11)
    assert queue.submit(1)
    assert not queue.submit(1)
    assert queue.submit(20)
    assert queue.room.bytes == 500


def test_at_most_half_of_the_room_is_kept() -> None:
    queue = Queue()
    queue.submit(50)
    queue.retry_after(100)
    assert not queue.submit(1)
    queue.ran(1)
    assert queue.submit(1)
