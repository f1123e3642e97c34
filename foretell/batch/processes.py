"""Where the processes of workers come from: one that has imported what they need, and forks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext

# Of Arrow's allocator, in milliseconds: many chunks. It would give what is freed back to the system
# at once, which clears every page anew, and the next chunk takes as much.
_PURGE_DELAY, _PURGE_MS = "MIMALLOC_PURGE_DELAY", "10000"


def begin() -> BaseContext:
    """Begin the process that forks, unless it has begun; it imports while this one goes on.

    Returns:
        What workers are started by. They have the environment of the first call.
    """
    os.environ.setdefault(_PURGE_DELAY, _PURGE_MS)
    spawn = multiprocessing.get_context("spawn")
    if sys.platform != "linux":
        # Elsewhere a process that has loaded the system's frameworks cannot fork.
        return spawn
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["foretell.batch.parts"])
    # It would unblock what is blocked here.
    resource_tracker.ensure_running()
    try:
        with _uninterrupted(), _same_modules():
            forkserver.ensure_running()
    except OSError:
        # There is no folder for its socket.
        return spawn
    return context


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Who interrupts the command is answered by it, and by no process that begins meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _same_modules() -> Iterator[None]:
    """Have a process that begins meanwhile look for modules where this one does.

    It would look in the folder that it runs in before all others.
    """
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in path}
    os.environ.update(path)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
