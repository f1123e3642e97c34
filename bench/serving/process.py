"""A server in a process of its own, with whatever processes it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil

_PATIENCE = 120.0


@contextmanager
def running(
    command: Sequence[str | Path],
    ready: str,
    log: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> Iterator[psutil.Process]:
    """Run a server until the end of the block.

    Args:
        command: Starts it.
        ready: A URL that answers 200 once it serves.
        log: Takes its output.
        environment: Added to this process's.
        folder: To run it in.

    Raises:
        RuntimeError: it ended, or was not ready in time; the message has the end of its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(process, ready, log)
        yield psutil.Process(process.pid)
    finally:
        _stop(process)


def memory(process: psutil.Process) -> int:
    """Proportional set size in bytes, of the process and its descendants."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            total += one.memory_full_info().pss
    return total


def roles_of(process: psutil.Process) -> list[psutil.Process]:
    """The HTTP workers and the engine of a server of ours that are alive."""
    found = []
    for each in process.children():
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(each.cmdline()):
                found.append(each)
    return found


def engine_of(process: psutil.Process) -> psutil.Process | None:
    """The one of them that has loaded onnxruntime; None where that is not one alone."""
    found = [
        each
        for each in roles_of(process)
        if any("onnxruntime" in one.path for one in each.memory_maps())
    ]
    return found[0] if len(found) == 1 else None


def _wait(process: subprocess.Popen[bytes], ready: str, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with suppress(httpx.HTTPError):
            if httpx.get(ready, timeout=2).status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    raise RuntimeError(f"it did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole session of the process, politely first."""
    with suppress(psutil.Error):
        family = [
            psutil.Process(process.pid),
            *psutil.Process(process.pid).children(recursive=True),
        ]
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=10)
        for one in alive:
            with suppress(psutil.Error):
                one.kill()
    process.wait()
