"""The door of a cluster: our application before engines on any node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from foretell.service.engine.catalogue import Policy
from foretell.service.engine.directory import Directory
from foretell.service.engine.local import LocalEngine
from foretell.service.engine.repository import Repository
from foretell.service.engine.source import open_source
from foretell.service.errors import NotSupportedError
from foretell.service.metrics import Metrics
from foretell.service.ray.handles import Handle
from foretell.service.ray.model import RayModel
from foretell.service.ray.tally import Teller, asked
from foretell.service.session import CPU, CUDA
from foretell.service.settings import Settings
from foretell.service.statistics import StatisticsReport

_FOLDER_DECIDES = (
    "a cluster serves what its repository holds: put a bundle there, or take it away; with "
    "FORETELL_WATCH_SECONDS every door looks for itself"
)
_STOPPING = "the server is stopping"


def open_repository(settings: Settings, engines: Handle, batch: int) -> Repository:
    """The repository as a door has it: its models are the engines'.

    Args:
        settings: Where it is, and which versions.
        engines: Run the models.
        batch: Most windows that engines run together.

    Raises:
        StartError: its URL is wrong, or the environment does not say enough.
    """
    provider = CUDA if settings.device == "cuda" else CPU
    policy = Policy(settings.versions, settings.pin)
    folder, source = open_source(settings, policy.choose)
    return Repository(
        folder,
        lambda bundle: RayModel(bundle, engines, provider, batch),
        # To know a bundle is not to load it, which engines count.
        Metrics(),
        source=source,
        policy=policy,
        watch_seconds=settings.watch_seconds,
        request_seconds=settings.timeout_seconds,
    )


class RayEngine(LocalEngine):
    """The engines of a cluster as a door has them; see `Engine`.

    The directory is the door's own: it reads the manifests, and engines load what it asks for.

    Args:
        repository: Its models, which the engines run.
        metrics: Where this door counts.
        tally: What all have counted.
    """

    def __init__(self, repository: Repository, metrics: Metrics, tally: Handle) -> None:
        super().__init__(repository, metrics)
        self._tally = tally
        self._teller = Teller(metrics, tally, self.drain)

    @property
    def directory(self) -> Directory:
        """See `Engine.directory`; nothing is accepted any more once the server is stopping."""
        found = super().directory
        # Ray's proxy goes on connecting callers.
        return replace(found, gone=_STOPPING) if self.repository.draining else found

    async def start(self) -> None:
        """See `Engine.start`; from now on this door hears when the server is to end."""
        self._teller.start()

    async def load(self, name: str, version: str | None) -> None:  # noqa: ARG002
        """No door can make the others load anything.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(_FOLDER_DECIDES)

    async def unload(self, name: str, version: str | None) -> None:  # noqa: ARG002
        """See `load`."""
        raise NotSupportedError(_FOLDER_DECIDES)

    async def statistics(self, versions: Iterable[tuple[str, str]]) -> StatisticsReport:
        """See `Engine.statistics`: of the whole cluster."""
        found = await self._ask("statistics", [*versions])
        return StatisticsReport.model_validate(found)

    async def render(self) -> bytes:
        """See `Engine.render`: of the whole cluster."""
        text = await self._ask("render")
        assert isinstance(text, bytes)  # noqa: S101 - what `Tally.render` returns
        return text

    async def close(self) -> None:
        """See `Engine.close`: the engines go on for other doors."""
        await self._teller.close()
        await super().close()

    async def _ask(self, method: str, *given: object) -> object:
        await self._teller.tell()
        return await asked(self._tally.options(method_name=method), *given)
