"""Small programs for the stand-in: `python -m tests.gpu.sessions NAME GRAPH …`."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.cuda.gpu import CudaSession
from foretell.service.engine.limits import resident_bytes, return_free_memory
from foretell.service.engine.runtime import Runtime
from foretell.service.errors import StartError
from foretell.service.session import Session

_BATCH = 128
_REPLAYS = 10_000
_MIB = 1024 * 1024


def feeds(session: Session, windows: int) -> Arrays:
    return {
        name: np.ones((windows, *(axis or 1 for axis in shape[1:])), np.float32)
        for name, shape in session.inputs.items()
    }


def replay(graph: str, windows: str, times: str) -> object:
    """Replay a batch; its calls are the last ones in the log."""
    session = Runtime("cuda").open(Path(graph), max_batch=_BATCH)
    session.warm(0)
    rows = feeds(session, int(windows))
    for _ in range(int(times)):
        session.run(rows)
    return {"inputs": len(session.inputs), "outputs": len(session.outputs)}


def memory(*graphs: str) -> object:
    """Resident MiB: before, with the sessions open and used, after many replays, closed."""
    runtime = Runtime("cuda")
    # The first sessions load libraries that stay in memory.
    for _ in range(2):
        for session in _open(runtime, graphs):
            session.close()
    return_free_memory()
    before = resident_bytes()
    sessions = _open(runtime, graphs)
    _replay(sessions, 1)
    opened = resident_bytes()
    _replay(sessions, _REPLAYS // 3)
    replayed = resident_bytes()
    for session in sessions:
        session.close()
    return_free_memory()
    closed = resident_bytes()
    return [round(held / _MIB, 1) for held in (before, opened, replayed, closed)]


def _open(runtime: Runtime, graphs: tuple[str, ...]) -> list[Session]:
    sessions = [runtime.open(Path(graph), max_batch=_BATCH) for graph in graphs]
    for session in sessions:
        session.warm(0)
    return sessions


def _replay(sessions: list[Session], times: int) -> None:
    """Replay batches of three sizes, each `times` times."""
    for session in sessions:
        for windows in (1, 7, _BATCH):
            rows = feeds(session, windows)
            for _ in range(times):
                session.run(rows)


def captures(*graphs: str) -> object:
    """Warm all GPUs at once, and meanwhile replay, open and close other graphs on them."""
    runtime = Runtime("cuda")
    first, *others = (runtime.open(Path(graph), max_batch=_BATCH) for graph in graphs)
    errors: list[str] = []

    def work(worker: int) -> None:
        try:
            first.warm(worker)
            for other in others:
                other.warm(worker)
                for windows in range(1, 40):
                    for session in (first, other):
                        session.run(feeds(session, windows), worker)
        except Exception as error:
            errors.append(f"{error}: {error.__cause__}")

    threads = [
        threading.Thread(target=work, args=(worker,))
        for worker in range(runtime.inference_threads(1))
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        plain = runtime.open(Path(graphs[-1]))
        plain.run(feeds(plain, 5))
        plain.close()
    captured = [isinstance(one, CudaSession) and one.captures for one in (first, *others)]
    return {"errors": errors, "captured": captured}


def devices(choice: str) -> object:
    """The devices that a runtime finds."""
    try:
        runtime = Runtime(choice)  # type: ignore[arg-type]
    except StartError as error:
        return {"error": str(error)}
    return {"provider": runtime.provider, "workers": runtime.inference_threads(8)}


if __name__ == "__main__":
    program = {one.__name__: one for one in (replay, memory, captures, devices)}
    sys.stdout.write(json.dumps(program[sys.argv[1]](*sys.argv[2:])))  # type: ignore[operator]
