"""Whether the processes of a server can answer: each of them tells for all."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel

from foretell.service.repository import Repository

_logger = logging.getLogger(__name__)

_READY = "ready"


class Report(BaseModel):
    """What processes say.

    Attributes:
        ready: Whether every one of them can answer.
        processes: How many they are.
        models: State of every version, by `name@version`; of several, the first that is not ready.
    """

    ready: bool
    processes: int
    models: dict[str, str]


class Readiness:
    """What this process and the others say.

    Args:
        repository: Of this process.
        file: Where this process tells the others, who do so next to it; None if it is alone.
    """

    def __init__(self, repository: Repository, file: Path | None = None) -> None:
        self._repository = repository
        self._file = file
        self._published: Report | None = None

    @property
    def own(self) -> bool:
        """Whether this process can answer."""
        return self._repository.ready

    def drain(self) -> None:
        """Say that this process is stopping."""
        self._repository.drain()
        self.publish()

    def publish(self) -> None:
        """Tell the others; to be called about once a second."""
        own = self._own()
        if self._file is None or own == self._published:
            return
        temporary = self._file.with_suffix(".partial")
        try:
            temporary.write_text(own.model_dump_json())
            temporary.replace(self._file)
        except OSError:
            _logger.exception("the other processes cannot be told what this one has")
        else:
            self._published = own

    def report(self) -> Report:
        """What all processes say together."""
        reports = [self._own()]
        if self._file is not None:
            reports += _others(self._file)
        models: dict[str, str] = {}
        for report in reports:
            for version, state in report.models.items():
                if models.get(version, _READY) == _READY:
                    models[version] = state
        ready = all(report.ready for report in reports)
        return Report(ready=ready, processes=len(reports), models=models)

    def _own(self) -> Report:
        repository = self._repository
        return Report(ready=repository.ready, processes=1, models=repository.report())


def _others(own: Path) -> list[Report]:
    reports = []
    for file in own.parent.glob("*.json"):
        if file != own:
            try:
                reports.append(Report.model_validate_json(file.read_bytes()))
            except FileNotFoundError:
                # The process has just ended.
                continue
    return reports
