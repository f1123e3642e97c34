"""What processes do in tests; those of a supervisor find their folder in the environment."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from foretell.service.errors import StartError
from foretell.service.processes import Pulse


def folder() -> Path:
    return Path(os.environ["FORETELL_TEST_FOLDER"])


def tell(slot: int, word: str) -> None:
    """Leave a file that says what the process of this slot does, and which one it is."""
    file = folder() / f"{slot}-{word}-{os.getpid()}"
    file.touch()


def told(word: str) -> list[int]:
    """The processes that said so."""
    return sorted(int(file.name.split("-")[-1]) for file in folder().glob(f"*-{word}-*"))


def serve_until(ended: list[int], slot: int, pulse: Pulse) -> None:
    """Serve until a signal's handler has put something into a list; events do not bear handlers."""
    pulse()
    tell(slot, "serving")
    while not ended:
        time.sleep(0.02)
        pulse()


def until_told_to_stop(slot: int, pulse: Pulse) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    serve_until(stopped, slot, pulse)
    tell(slot, "stopped")


def counting(slot: int, pulse: Pulse) -> None:
    """Says which signals it gets, until it is told to hurry."""
    hurried: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: tell(slot, f"terminate{time.monotonic_ns()}"))
    signal.signal(signal.SIGINT, lambda number, _: hurried.append(number))
    serve_until(hurried, slot, pulse)
    tell(slot, "hurried")


def slow_to_stop(slot: int, pulse: Pulse) -> None:
    """Goes on for a second, saying that it lives all the time."""
    until_told_to_stop(slot, pulse)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pulse()
        time.sleep(0.02)


def for_ever(slot: int, pulse: Pulse) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pulse()
    tell(slot, "serving")
    threading.Event().wait()


def never(slot: int, pulse: Pulse) -> None:
    if slot == 1:
        raise StartError("no such device")
    until_told_to_stop(slot, pulse)


def dies_at_once(slot: int, pulse: Pulse) -> None:
    if slot == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    until_told_to_stop(slot, pulse)


def cannot_return(slot: int, pulse: Pulse) -> None:
    if len(told("serving")) > 1:
        tell(slot, "refused")
        raise StartError("no longer")
    until_told_to_stop(slot, pulse)


def fails_with_last_words(slot: int, pulse: Pulse) -> None:
    from foretell.service import logs

    logs.configure("info", "json")
    logging.info("last words")
    raise RuntimeError


def supervised(act: Callable[[int, Pulse], None] = until_told_to_stop) -> None:
    """A supervisor of two, as a program: `python -c 'from … import supervised; supervised()'`."""
    from foretell.service.processes import Role, Supervisor, watched

    roles = [Role(f"role-{slot}", partial(act, slot)) for slot in range(2)]
    processes = watched([role.name for role in roles], 2)
    Supervisor(roles, stop_seconds=5, processes=processes).run(together=2)
