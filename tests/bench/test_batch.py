from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from bench import batch


def _one_dies(folder: Path, count: int, barrier: Barrier, queue: SimpleQueue[float]) -> None:
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        barrier.wait()
        queue.put(float(count))
    os.kill(os.getpid(), signal.SIGKILL)


def _all_end(_: Path, count: int, barrier: Barrier, queue: SimpleQueue[float]) -> None:
    queue.put(float(count + barrier.wait()))


def test_the_loop_of_which_a_process_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(batch, "usable_cpus", lambda: 2)
    monkeypatch.setattr(batch, "_loop", _one_dies)
    with pytest.raises(SystemExit, match="ended with -9"):
        batch.loop(tmp_path, 4)
    assert not multiprocessing.active_children()


def test_the_loop_takes_as_long_as_its_slowest_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(batch, "usable_cpus", lambda: 2)
    monkeypatch.setattr(batch, "_loop", _all_end)
    assert batch.loop(tmp_path, 4) == 3
