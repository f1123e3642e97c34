"""Functions that a supervisor's processes run; their folder is in the environment."""

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
from foretell.service.workers import Heartbeat


def folder() -> Path:
    return Path(os.environ["FORETELL_TEST_FOLDER"])


def record(slot: int, word: str) -> None:
    """Write a file with an event and the id of this slot's process."""
    file = folder() / f"{slot}-{word}-{os.getpid()}"
    file.touch()


def recorded(word: str) -> list[int]:
    """Ids of the processes with an event."""
    return sorted(int(file.name.split("-")[-1]) for file in folder().glob(f"*-{word}-*"))


def serve_until(ended: list[int], slot: int, heartbeat: Heartbeat) -> None:
    """Serve until a signal's handler fills a list; handlers must not set events."""
    heartbeat()
    record(slot, "serving")
    while not ended:
        time.sleep(0.02)
        heartbeat()


def until_stopped(slot: int, heartbeat: Heartbeat) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    serve_until(stopped, slot, heartbeat)
    record(slot, "stopped")


def counting(slot: int, heartbeat: Heartbeat) -> None:
    """Records its signals until it is hurried."""
    hurried: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: record(slot, f"terminate{time.monotonic_ns()}"))
    signal.signal(signal.SIGINT, lambda number, _: hurried.append(number))
    serve_until(hurried, slot, heartbeat)
    record(slot, "hurried")


def slow_to_stop(slot: int, heartbeat: Heartbeat) -> None:
    """Continues for a second with heartbeats."""
    until_stopped(slot, heartbeat)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        heartbeat()
        time.sleep(0.02)


def for_ever(slot: int, heartbeat: Heartbeat) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    heartbeat()
    record(slot, "serving")
    threading.Event().wait()


def never(slot: int, heartbeat: Heartbeat) -> None:
    if slot == 1:
        raise StartError("no such device")
    until_stopped(slot, heartbeat)


def dies_at_once(slot: int, heartbeat: Heartbeat) -> None:
    if slot == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    until_stopped(slot, heartbeat)


def cannot_return(slot: int, heartbeat: Heartbeat) -> None:
    if len(recorded("serving")) > 1:
        record(slot, "refused")
        raise StartError("no longer")
    until_stopped(slot, heartbeat)


def fails_with_last_words(slot: int, heartbeat: Heartbeat) -> None:
    from foretell.service import logs

    logs.configure("info", "json")
    logging.info("last words")
    raise RuntimeError


def supervised(act: Callable[[int, Heartbeat], None] = until_stopped) -> None:
    """A supervisor as a program: `python -c 'from … import supervised; supervised()'`."""
    from foretell.service.workers import Child, Supervisor, shared_processes

    names = [f"role-{slot}" for slot in range(2)]
    processes = shared_processes(names, 2)
    children = [Child(name, partial(act, slot), processes, 5) for slot, name in enumerate(names)]
    Supervisor(children, stop_seconds=5).run()
