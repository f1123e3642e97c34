"""What models have answered and how long it took, as the Open Inference Protocol's servers count.

The processes of a server write their counts to files, and each of them answers with the sums.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, RootModel
from pydantic.dataclasses import dataclass

from foretell.service.batching.observer import Observer

_logger = logging.getLogger(__name__)

RequestStage = Literal["decode", "queue", "run", "encode"]

_Key = tuple[str, str]
_STAGES: dict[RequestStage, str] = {
    "decode": "compute_input",
    "queue": "queue",
    "run": "compute_infer",
    "encode": "compute_output",
}


@dataclass(slots=True)
class Duration:
    """How often something happened, and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, seconds: float) -> None:
        """It happened again."""
        self.count += count
        self.ns += round(seconds * 1e9)


class Durations(BaseModel):
    """Durations by name, that add up."""

    def merge(self, other: BaseModel) -> None:
        """Add those of another process."""
        for name in type(self).model_fields:
            own, further = getattr(self, name), getattr(other, name)
            if isinstance(own, Duration):
                own.count += further.count
                own.ns += further.ns


class InferenceStatistics(Durations):
    """Of requests.

    Attributes:
        success: Those answered, from their headers to the end of the answer.
        fail: Those that were not, though their model was known.
        queue: Waiting for a batch.
        compute_input: Reading the request.
        compute_infer: In batches, from the first one's beginning to the last one's end.
        compute_output: Writing the answer.
        cache_hit: There is no cache.
        cache_miss: There is no cache.
    """

    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    cache_hit: Duration = Duration()
    cache_miss: Duration = Duration()


class BatchStatistics(Durations):
    """Of batches of a size.

    Attributes:
        batch_size: Windows in each of them.
        compute_input: Putting them together.
        compute_infer: Running them.
        compute_output: Nothing: their rows are handed out as they are.
    """

    batch_size: int
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()


class ModelStatistics(BaseModel):
    """Of a version of a model, since the server started.

    Attributes:
        name: The model's name.
        version: Its version.
        last_inference: When the last request for it ended, in milliseconds since 1970; or 0.
        inference_count: Windows of the requests that were answered.
        execution_count: Batches.
        inference_stats: Of requests.
        batch_stats: Of batches, by size.
    """

    name: str
    version: str
    last_inference: int = 0
    inference_count: int = 0
    execution_count: int = 0
    inference_stats: InferenceStatistics = InferenceStatistics()
    batch_stats: list[BatchStatistics] = []

    def batch(self, size: int) -> BatchStatistics:
        """Those of a size, perhaps none yet."""
        found = next((each for each in self.batch_stats if each.batch_size == size), None)
        if found is None:
            found = BatchStatistics(batch_size=size)
            self.batch_stats.append(found)
            self.batch_stats.sort(key=lambda each: each.batch_size)
        return found

    def merge(self, other: ModelStatistics) -> None:
        """Add those of another process."""
        self.last_inference = max(self.last_inference, other.last_inference)
        self.inference_count += other.inference_count
        self.execution_count += other.execution_count
        self.inference_stats.merge(other.inference_stats)
        for batch in other.batch_stats:
            self.batch(batch.batch_size).merge(batch)


class StatisticsReport(BaseModel):
    """The counts of models."""

    model_stats: list[ModelStatistics]


class Statistics:
    """The counts of a server's models; threads may share it.

    Args:
        file: Where this process tells the others, who do so next to it, and where it goes on from
            if it takes the place of one that died; None if it is alone.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._own = {} if file is None else _read(file)
        self._published = ""

    def observer(self, name: str, version: str) -> Observer:
        """What a model's queue reports to."""
        with self._lock:
            return _Batches(self._lock, self._of(name, version))

    def staged(self, stage: RequestStage, name: str, version: str, seconds: float) -> None:
        """A request went through a stage."""
        with self._lock:
            stages = self._of(name, version).inference_stats
            duration: Duration = getattr(stages, _STAGES[stage])
            duration.add(1, seconds)

    def answered(
        self, name: str, version: str, windows: int, seconds: float, *, succeeded: bool
    ) -> None:
        """A request has ended.

        Args:
            name: Of the model it was for.
            version: Likewise.
            windows: Histories that it holds.
            seconds: How long it took.
            succeeded: Whether it was answered.
        """
        with self._lock:
            own = self._of(name, version)
            own.last_inference = round(time.time() * 1000)
            stats = own.inference_stats
            (stats.success if succeeded else stats.fail).add(1, seconds)
            if succeeded:
                own.inference_count += windows

    def report(self, versions: Iterable[tuple[str, str]]) -> StatisticsReport:
        """The counts of all processes, of versions by name and version."""
        with self._lock:
            found = {key: self._of(*key).model_copy(deep=True) for key in versions}
        if self._file is not None:
            for file in self._file.parent.glob("*.json"):
                others = _read(file) if file != self._file else {}
                for key in found.keys() & others.keys():
                    found[key].merge(others[key])
        return StatisticsReport(model_stats=list(found.values()))

    def publish(self) -> None:
        """Tell the other processes; to be called about once a second."""
        if self._file is None:
            return
        with self._lock:
            text = _File(list(self._own.values())).model_dump_json()
        if text == self._published:
            return
        temporary = self._file.with_suffix(".partial")
        try:
            temporary.write_text(text)
            temporary.replace(self._file)
        except OSError:
            _logger.exception("the other processes cannot be told what this one has counted")
        else:
            self._published = text

    def _of(self, name: str, version: str) -> ModelStatistics:
        found = self._own.get((name, version))
        if found is None:
            found = self._own[name, version] = ModelStatistics(name=name, version=version)
        return found


_File = RootModel[list[ModelStatistics]]


class _Batches:
    """Counts the batches of a queue; each thread reports its own one after the other."""

    def __init__(self, lock: threading.Lock, counts: ModelStatistics) -> None:
        self._lock = lock
        self._counts = counts
        self._batch = _Batch()

    def assembled(self, seconds: float) -> None:
        self._batch.assemble_seconds = seconds

    def ran(self, windows: int, seconds: float) -> None:
        with self._lock:
            self._counts.execution_count += 1
            batch = self._counts.batch(windows)
            batch.compute_input.add(1, self._batch.assemble_seconds)
            batch.compute_infer.add(1, seconds)
            batch.compute_output.add(1, 0)

    def waited(self, seconds: float) -> None:
        """Counted with the requests."""

    def filled(self, fraction: float) -> None:
        """Not counted here."""

    def expired(self) -> None:
        """Not counted here."""

    def cancelled(self) -> None:
        """Not counted here."""


class _Batch(threading.local):
    """What a thread was told of its batch so far."""

    assemble_seconds = 0.0


def _read(file: Path) -> dict[_Key, ModelStatistics]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return {}
    return {(each.name, each.version): each for each in _File.model_validate_json(text).root}
