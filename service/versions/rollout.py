"""What is wanted of all processes of a server, done in each of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from foretell.service.errors import LoadFailedError, NotReadyError, StartError
from foretell.service.versions.lifecycle import Lifecycle
from foretell.service.versions.state import Change, Desired, Report, State
from foretell.service.versions.table import Table

_logger = logging.getLogger(__name__)

_AGREE_SECONDS = 120.0
_LOOK_SECONDS = 0.25


class Rollout:
    """Makes wishes known to all processes, and fulfils those of all in this one.

    Args:
        table: What this process has.
        lifecycle: Changes it.
        state: Where the processes agree.
    """

    def __init__(self, table: Table, lifecycle: Lifecycle, state: State) -> None:
        self._table = table
        self._lifecycle = lifecycle
        self._state = state
        self._changing = threading.Lock()
        self._applied = 0
        self._announced = False
        self._stopped = False

    def begin(self, wishes: Change) -> Desired:
        """Make the first wishes, unless another process has, and fulfil them.

        Raises:
            StartError: the device does not work.
        """
        with self._changing:
            desired = self._state.update(lambda now: now if now.generation else wishes(now))
            self._apply(desired)
            return desired

    def announce(self) -> None:
        """From here on the other processes wait for this one, which follows them."""
        with self._changing:
            self._announced = True
            self._report()

    def load(self, name: str, versions: Collection[str]) -> None:
        """Have versions loaded as their bundles are now, in every process.

        They are loaded here first, so that a bundle that is refused costs the others nothing.

        Raises:
            LoadFailedError: a process refused one. The others of them are loaded, and so is what
                was there before.
            NotReadyError: the server is stopping; the others may have been told.
        """
        reasons, brought = [], []
        with self._changing:
            if self._stopped:
                raise NotReadyError("the server is stopping")
            before = self._state.read()
            for version in versions:
                if self._stopped:
                    raise NotReadyError("the server is stopping")
                try:
                    self._lifecycle.bring(name, version)
                    brought.append(version)
                except LoadFailedError as error:
                    reasons.append(error.message)
            generation = self._wish(lambda desired: desired.with_wishes(name, brought))
        if disagreed := self._disagreements(generation, name, brought):
            # Otherwise, who asks for the newest would get one or the other by chance.
            self.unload(name, [one for one in brought if not before.wants(name, one)])
        if reasons := [*reasons, *disagreed]:
            raise LoadFailedError("; ".join(reasons), param="model")

    def unload(self, name: str, versions: Collection[str]) -> None:
        """Have versions out of service in every process.

        Raises:
            NotReadyError: the server is stopping; the others have been told.
        """
        with self._changing:
            generation = self._wish(lambda desired: desired.without(name, versions))
            for version in versions:
                self._lifecycle.drop(name, version)
        for pid, report in self._followed(generation).items():
            if report is None:
                _logger.error("process %d has not unloaded %s %s", pid, name, ", ".join(versions))

    def follow(self) -> None:
        """Fulfil what other processes have wished for."""
        if self._state.read().generation != self._applied:
            with self._changing:
                if not self._stopped:
                    self._apply(self._state.read())

    def stop(self) -> None:
        """Change nothing any more."""
        self._stopped = True

    def _wish(self, change: Change) -> int:
        desired = self._state.update(change)
        self._apply(desired)
        return desired.generation

    def _apply(self, desired: Desired) -> None:
        for name, stamps in desired.wanted.items():
            for version, stamp in stamps.items():
                if self._stopped:
                    return
                if self._table.get(name, version).stamp != stamp:
                    try:
                        self._lifecycle.bring(name, version, stamp)
                    except LoadFailedError as error:
                        if isinstance(error.__cause__, StartError) and not self._announced:
                            raise error.__cause__ from None
                        # The table says why, and with it the report.
        for name, version, slot in self._table:
            if not desired.wants(name, version) and (slot.stamp or slot.model is not None):
                self._lifecycle.drop(name, version)
        self._applied = desired.generation
        if self._announced:
            self._report()

    def _report(self) -> None:
        entries = (slot.entry(name, version) for name, version, slot in self._table)
        self._state.report(Report(generation=self._applied, index=tuple(entries)))

    def _followed(self, generation: int) -> dict[int, Report | None]:
        """As `State.others`; waits for nobody once this process is told to stop."""
        end = time.monotonic() + _AGREE_SECONDS
        while True:
            reports = self._state.others(generation, _LOOK_SECONDS)
            if None not in reports.values() or time.monotonic() > end:
                return reports
            if self._stopped:
                raise NotReadyError("the server is stopping")

    def _disagreements(self, generation: int, name: str, versions: Collection[str]) -> list[str]:
        """Why other processes do not have versions that this one has."""
        reasons = []
        reports = self._followed(generation)
        desired = self._state.read()
        for pid, report in reports.items():
            if report is None:
                reasons.append(f"process {pid} has not followed within {_AGREE_SECONDS:.0f} s")
                continue
            reasons.extend(
                f"process {pid}: {entry.reason}"
                for entry in report.index
                if entry.name == name
                and entry.version in versions
                and entry.reason
                # Or somebody has had it unloaded since.
                and desired.wants(name, entry.version)
            )
        return reasons
