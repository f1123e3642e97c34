"""A model as a door of a cluster has it: engines on any node run it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ray.exceptions import RayActorError, RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from foretell.bundle import layout, manifest
from foretell.service.arrays import Arrays
from foretell.service.engine.model import Bundled
from foretell.service.engine.queues import Usage, own_error
from foretell.service.errors import (
    EngineLostError,
    ModelFailedError,
    QueueFullError,
    ServiceError,
    from_wire,
    to_wire,
)
from foretell.service.ray.handles import Handle, Response

# A forecast changes nothing, so one whose engine died is asked for again; but a request that kills
# what runs it is not to go round all engines.
_ATTEMPTS = 2
_RETRY_SECONDS = 1
_SUM_DIGITS = 16


class Answer(NamedTuple):
    """What an engine says of a run.

    Attributes:
        error: Of a run that failed, as `to_wire` tells it; or None.
        waited: Seconds until the first of its batches.
        ran: Seconds from then until the last of them had run.
        batch: Windows of the largest of them.
        outputs: `[windows, …]` by name.
    """

    error: dict[str, Any] | None
    waited: float = 0.0
    ran: float = 0.0
    batch: int = 0
    outputs: Arrays = {}  # noqa: RUF012 - a tuple's, which nobody changes

    @classmethod
    def refusal(cls, error: ServiceError) -> Answer:
        """The answer to what failed."""
        return cls(to_wire(error))


def key_of(folder: Path) -> str:
    """What engines know a bundle by: `name@version` and the beginning of its manifest's sum.

    With the sum, a bundle that was changed in place is another one for the engines, too.

    Raises:
        OSError: there is no bundle.
    """
    told = sha256((folder / layout.MANIFEST).read_bytes()).hexdigest()
    return f"{folder.parent.name}@{folder.name}#{told[:_SUM_DIGITS]}"


class RayRun:
    """A run that engines were asked for; see `directory.Pending`. For the event loop alone.

    Args:
        asking: Gets the answer; may raise `ServiceError`.
    """

    def __init__(self, asking: Coroutine[Any, Any, Answer]) -> None:
        self.submitted = self.began = self.ended = time.monotonic()
        self.loading = 0.0
        self.batch = 0
        self._task = asyncio.ensure_future(asking)
        self._task.add_done_callback(self._take)

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """See `Pending.add_done_callback`."""
        self._task.add_done_callback(lambda _: callback(self))

    def done(self) -> bool:
        """See `Pending.done`."""
        return self._task.done()

    def result(self) -> Arrays:
        """See `Pending.result`."""
        if (error := self._task.exception()) is not None:
            raise own_error(error)
        return self._task.result().outputs

    def cancel(self) -> bool:
        """See `Pending.cancel`."""
        return self._task.cancel()

    def _take(self, task: asyncio.Task[Answer]) -> None:
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        # The engine's clock is of another machine: what the way took counts as waiting.
        self.ended = time.monotonic()
        self.began = self.ended - answer.ran
        self.batch = answer.batch


class RayModel(Bundled):
    """A version that the engines of a cluster run; see `directory.Loaded`.

    Its bundle is checked by the engines that load it.

    Args:
        folder: The bundle.
        engines: Take its runs.
        provider: The execution provider that runs it there.
        max_batch: Most windows that are run together there.

    Raises:
        BundleError: the manifest, or what a door needs besides, is damaged or at a wrong place.
        OSError: it cannot be read.
    """

    on_demand = False
    # Not in this process.
    resident = False

    def __init__(self, folder: Path, engines: Handle, provider: str, max_batch: int) -> None:
        super().__init__(folder, manifest.read(folder))
        self.provider = provider
        self.max_batch = max_batch
        # No door knows of one: whether a model works is found out where it runs.
        self.failure: str | None = None
        self._key = key_of(folder)
        self._engines = engines.options(method_name="run", multiplexed_model_id=self._key)

    @property
    def usage(self) -> Usage:
        """Nothing waits here; what waits at engines they tell themselves."""
        return Usage(0, 0, 0, 0)

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> RayRun:
        """See `directory.Model.submit`; what is not accepted fails later."""
        return RayRun(self._ask(feeds, tuple(attention), deadline, admitted))

    def load(self) -> None:
        """See `directory.Loaded.load`: engines do when they are asked."""

    def close(self, timeout: float) -> None:
        """There is nothing to close."""

    async def _ask(
        self, feeds: Arrays, attention: Sequence[str], deadline: float, admitted: bool
    ) -> Answer:
        for _ in range(_ATTEMPTS):
            # Clocks of machines differ: what is told is the time left.
            seconds = deadline - time.monotonic()
            response = self._engines.remote(self._key, feeds, attention, seconds, admitted)
            try:
                answer = await _answered(response)
            except (RayActorError, TaskCancelledError):
                # It died, or was told to stop before it had finished.
                continue
            except BackPressureError:
                full = "too much waits for the engines of this cluster"
                raise QueueFullError(full, retry_after=_RETRY_SECONDS) from None
            except DeploymentUnavailableError:
                break
            except RayError as error:
                raise ModelFailedError("the engine could not run the model") from error
            if answer.error is not None:
                raise from_wire(answer.error)
            return answer
        raise EngineLostError("the engine that ran this has ended; another one takes its place")


async def _answered(response: Response) -> Answer:
    try:
        answer: Answer = await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    return answer
