from __future__ import annotations

import logging
import threading

import pytest

from foretell.service.versions.watcher import Watcher


def test_looks_again_and_again_until_it_is_stopped() -> None:
    looks = threading.Semaphore(0)
    watcher = Watcher(looks.release, 0.001, "look")
    for _ in range(3):
        assert looks.acquire(timeout=30)
    watcher.stop()
    watcher._thread.join(30)
    assert not watcher._thread.is_alive()


def test_what_goes_wrong_is_logged_once_and_does_not_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = iter(["gone", "gone", None, "gone", "denied"])
    done = threading.Event()

    def look() -> None:
        error = next(errors, "over")
        if error == "over":
            done.set()
        elif error is not None:
            raise OSError(error)

    with caplog.at_level(logging.ERROR):
        watcher = Watcher(look, 0.001, "look")
        assert done.wait(30)
        watcher.stop()
    said = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert said == ["gone", "gone", "denied"]
