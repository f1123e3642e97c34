"""What all processes of a server should have loaded, and what each of them has."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from foretell.service.versions.table import Entry

_POLL_SECONDS = 0.05
_DESIRED = "desired.json"
_LOCK = "desired.lock"

_Document = TypeVar("_Document", bound=BaseModel)


class Desired(BaseModel):
    """What every process should have loaded.

    Attributes:
        generation: Grows with every change; 0 before the first.
        wanted: Versions that should be loaded, by name. Each has the stamp of the wish for it, the
            generation that it began with: a version is attempted once for each stamp.
        seen: Checksums of the manifests that were in the repository, by name and version, when a
            process last looked: what differs from them is news that no process has acted on.
    """

    model_config = ConfigDict(frozen=True)

    generation: int = 0
    wanted: dict[str, dict[str, int]] = {}
    seen: dict[str, dict[str, str]] = {}

    def wants(self, name: str, version: str) -> bool:
        """Whether a version should be loaded."""
        return version in self.wanted.get(name, {})

    def with_wishes(self, name: str, versions: Iterable[str]) -> Self:
        """This, and versions of a model loaded, or loaded anew."""
        stamps = dict.fromkeys(versions, self.generation + 1)
        return self._with_versions(name, {**self.wanted.get(name, {}), **stamps})

    def without(self, name: str, versions: Collection[str]) -> Self:
        """This, and versions of a model not loaded."""
        wanted = self.wanted.get(name, {})
        return self._with_versions(
            name, {one: stamp for one, stamp in wanted.items() if one not in versions}
        )

    def having_seen(self, seen: dict[str, dict[str, str]]) -> Self:
        """This, and the repository looked at."""
        return self.model_copy(update={"seen": seen})

    def _with_versions(self, name: str, stamps: dict[str, int]) -> Self:
        wanted = {**self.wanted, name: stamps}
        return self.model_copy(update={"wanted": {key: own for key, own in wanted.items() if own}})


class Report(BaseModel):
    """What a process has.

    Attributes:
        generation: The last one it has acted on.
        index: Its versions.
    """

    model_config = ConfigDict(frozen=True)

    generation: int
    index: tuple[Entry, ...]


Change = Callable[[Desired], Desired]


class State(Protocol):
    """Where the processes of a server agree."""

    def read(self) -> Desired:
        """What is wanted."""

    def update(self, change: Change) -> Desired:
        """Change what is wanted, one process at a time; returns it with its new generation."""

    def report(self, report: Report) -> None:
        """Tell the others what this process has."""

    def others(self, generation: int, timeout: float) -> dict[int, Report | None]:
        """Wait until the other processes have acted on a generation.

        Returns:
            Their reports, by process id; None for one that has not within `timeout` seconds.
        """

    def close(self) -> None:
        """This process is ending."""


class LocalState:
    """The state of a server of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._desired = Desired()

    def read(self) -> Desired:
        """See `State`."""
        return self._desired

    def update(self, change: Change) -> Desired:
        """See `State`."""
        with self._lock:
            self._desired = _changed(self._desired, change)
            return self._desired

    def report(self, report: Report) -> None:
        """See `State`."""

    def others(self, generation: int, timeout: float) -> dict[int, Report | None]:  # noqa: ARG002
        """See `State`."""
        return {}

    def close(self) -> None:
        """See `State`."""


class SharedState:
    """The state of a server of several processes, as files; each is replaced, never rewritten.

    Args:
        folder: Of this server alone, empty or missing when it starts. Holds `desired.json` and,
            of every process, a `worker-<pid>.json`.
        pid: This process.
    """

    def __init__(self, folder: Path, pid: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._pid = os.getpid() if pid is None else pid
        # Those that were killed could not say that they ended, and their numbers are used again.
        for path in folder.glob("worker-*.json"):
            if not _is_alive(int(path.stem.removeprefix("worker-"))):
                path.unlink(missing_ok=True)

    def read(self) -> Desired:
        """See `State`."""
        return _read(self._folder / _DESIRED, Desired) or Desired()

    def update(self, change: Change) -> Desired:
        """See `State`."""
        with self._locked():
            desired = self.read()
            changed = _changed(desired, change)
            if changed is not desired:
                _write(self._folder / _DESIRED, changed)
            return changed

    def report(self, report: Report) -> None:
        """See `State`."""
        _write(self._path(self._pid), report)

    def others(self, generation: int, timeout: float) -> dict[int, Report | None]:
        """See `State`."""
        end = time.monotonic() + timeout
        while True:
            reports = self._others()
            late = [pid for pid, report in reports.items() if report.generation < generation]
            if not late or time.monotonic() > end:
                return {pid: None if pid in late else report for pid, report in reports.items()}
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """See `State`."""
        self._path(self._pid).unlink(missing_ok=True)

    def _others(self) -> dict[int, Report]:
        """Reports of the other processes that are alive."""
        reports = {}
        for path in self._folder.glob("worker-*.json"):
            pid = int(path.stem.removeprefix("worker-"))
            report = _read(path, Report) if pid != self._pid and _is_alive(pid) else None
            if report is not None:
                reports[pid] = report
        return reports

    def _path(self, pid: int) -> Path:
        return self._folder / f"worker-{pid}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / _LOCK).open("w") as file:
            # Freed with the file, also when the process dies.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _changed(desired: Desired, change: Change) -> Desired:
    changed = change(desired)
    if changed == desired:
        return desired
    return changed.model_copy(update={"generation": desired.generation + 1})


def _read(path: Path, kind: type[_Document]) -> _Document | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise RuntimeError(f"{path} was changed from outside") from error


def _write(path: Path, document: BaseModel) -> None:
    # Threads of this process may write the same report.
    temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
    temporary.write_text(document.model_dump_json())
    temporary.replace(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
