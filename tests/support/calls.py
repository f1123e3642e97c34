"""The calls of one request.

Counts what our own code does for one `POST /forecast` of one series with a start time and a key,
from the connection to the last byte and the line in the log: in one process, and with two HTTP
workers, an engine and the socket between them. The server is a real one; each of its processes
records its calls (`tests/support/recorder/sitecustomize.py`).

- files: those of `service/`, `bundle/` and `foretell/` that hold a function that was called
- calls: of their functions, by whomever, so those that uvicorn, the event loop and the standard
  library make, too; each time that a coroutine or a generator is resumed is a call
- changes: how often a call lies in another file than the one before it, in the order of time over
  all threads and processes

Left out: calls of libraries and of C; comprehensions and generator expressions, which are lines of
their function; what the server does without any request (its start and its clocks); the end of the
connection. In some of several rounds clocks tick: the calls that most rounds have in common count.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPResponse
from itertools import pairwise
from pathlib import Path

import psutil

from tests.support.process import Server

_RECORDER = Path(__file__).parent / "recorder"
_KEY = "bench"
_WARM, _ROUNDS = 20, 21
# The event loop finishes a request soon after its last byte; the log gathers lines for 50 ms.
_LOOP_SECONDS, _LOG_SECONDS = 0.02, 0.08
_PATIENCE = 10.0
# Values of the first byte of the recorders' state: the calls to record. The second counts rounds.
NOTHING, ALL, OTHER_THREADS = range(3)


@dataclass(frozen=True)
class Call:
    """A call of a function of ours.

    Attributes:
        path: Of its file, from the repository's root.
        function: Its qualified name.
        place: Process and thread.
    """

    path: str
    function: str
    place: str


@dataclass(frozen=True)
class Trace:
    """The calls of one request, in the order of time."""

    calls: Sequence[Call]

    @property
    def files(self) -> list[str]:
        """The files, in the order of their first calls."""
        return list(dict.fromkeys(call.path for call in self.calls))

    @property
    def changes(self) -> int:
        """How often a call lies in another file than the one before it."""
        return sum(one.path != two.path for one, two in pairwise(self.calls))


class Recorders:
    """Starts and stops the recorders in the processes of a server.

    Args:
        folder: Created for the files of the recorders.
        tree: The repository's root.

    Attributes:
        environment: Variables that make a process record.
    """

    def __init__(self, folder: Path, tree: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._state = folder / "state"
        self._state.write_bytes(bytes(2))
        self._round = 0
        self.environment = {
            "FORETELL_CALLS": str(folder),
            "FORETELL_CALLS_TREE": str(tree.resolve()),
            "PYTHONPATH": f"{_RECORDER}:{tree}",
        }

    def record(self, what: int) -> None:
        """Have all processes record nothing, all, or all but what their main threads do."""
        self._set(0, what)

    def take(self) -> Trace:
        """Return the calls recorded since the previous `take`.

        Raises:
            RuntimeError: a process does not write.
        """
        self._round += 1
        self._set(1, self._round)
        found: list[tuple[int, Call]] = []
        for process in self._folder.glob("*.process"):
            written = process.with_suffix(f".{self._round}")
            _wait(written, int(process.stem))
            if written.exists():
                name, calls = json.loads(written.read_text())
                for at, thread, path, function in calls:
                    found.append((at, Call(path, function, f"{name}, {thread}")))
        return Trace([call for _, call in sorted(found, key=lambda each: each[0])])

    def _set(self, place: int, value: int) -> None:
        with self._state.open("r+b") as file:
            file.seek(place)
            file.write(bytes([value]))


def _wait(written: Path, process: int) -> None:
    end = time.monotonic() + _PATIENCE
    while not written.exists() and psutil.pid_exists(process):
        if time.monotonic() > end:
            raise RuntimeError(f"process {process} does not write what it recorded")
        time.sleep(0.002)


def count(
    tree: Path, python: Path, repository: Path, body: bytes, folder: Path, *, workers: int = 1
) -> Trace:
    """The calls of one request.

    Args:
        tree: The repository's root at the commit whose code is to run.
        python: Has what that code needs.
        repository: The bundles to serve.
        body: Of `POST /forecast`.
        folder: Made for the log and the records.
        workers: HTTP workers.

    Raises:
        RuntimeError: the server does not start, or refuses the request.
    """
    folder.mkdir()
    recorders = Recorders(folder / "records", tree)
    settings = {"api_keys": _KEY, "threads": 1, "workers": workers}
    with Server(
        repository,
        folder / "log",
        program=(str(python), "-m", "foretell"),
        environment={**os.environ, **recorders.environment},
        folder=folder,
        **settings,
    ) as server:
        port = int(server.url.rpartition(":")[2])
        for _ in range(_WARM):
            with _asking(port, body):
                pass
        rounds = []
        for _ in range(_ROUNDS):
            # Until the end of the connection before is over.
            time.sleep(_LOOP_SECONDS)
            recorders.record(ALL)
            with _asking(port, body):
                time.sleep(_LOOP_SECONDS)
                recorders.record(OTHER_THREADS)
                time.sleep(_LOG_SECONDS)
                recorders.record(NOTHING)
                rounds.append(recorders.take())
        server.stop()
    return usual(rounds)


def usual(rounds: Sequence[Trace]) -> Trace:
    """A round with the calls that occurred most often; with the fewest changes of these."""
    functions = [
        tuple(sorted((call.path, call.function) for call in each.calls)) for each in rounds
    ]
    [(most_common, _)] = Counter(functions).most_common(1)
    alike = [each for each, of_it in zip(rounds, functions, strict=True) if of_it == most_common]
    return min(alike, key=lambda trace: trace.changes)


@contextmanager
def _asking(port: int, body: bytes) -> Iterator[None]:
    """Send the request over a new connection, which is held until the end of the block.

    Raises:
        RuntimeError: it is refused.
    """
    head = (
        f"POST /forecast HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-API-Key: {_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with (
        socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection,
        HTTPResponse(connection) as response,
    ):
        connection.sendall(head.encode() + body)
        response.begin()
        content = response.read()
        if response.status != HTTPStatus.OK:
            raise RuntimeError(f"it answers {response.status}: {content[:300]!r}")
        yield
