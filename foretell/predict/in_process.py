"""A bundle in this process, behind the same client and application as a server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx

from foretell.bundle import checksums, layout, manifest
from foretell.client import Client
from foretell.errors import RefusedError
from foretell.service.api.app import create_app
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.errors import StartError
from foretell.service.metrics import Metrics
from foretell.service.settings import DeviceChoice, Settings

Result = TypeVar("Result")

# There are no other clients, so that requests need no practical limit on time.
_SECONDS = 86_400.0


@contextmanager
def opened(folder: Path, device: DeviceChoice = "auto") -> Iterator[Client]:
    """A client of a bundle; both are closed at the end. See `OpenBundle`."""
    bundle = OpenBundle(folder, device)
    try:
        yield bundle.client
    finally:
        bundle.close()


class OpenBundle:
    """A bundle, loaded as a server loads it.

    Args:
        folder: A bundle, or a model's folder for its newest bundle. The manifest determines the
            served name.
        device: Device of the model.

    Attributes:
        client: Client of the bundle.

    Raises:
        BundleError: the bundle is damaged.
        RefusedError: the bundle does not work here; the message gives the reason.
    """

    def __init__(self, folder: Path, device: DeviceChoice = "auto") -> None:
        folder = layout.newest(folder)
        found = manifest.read(folder)
        # Checked here, so that messages name this folder and not the temporary one.
        checksums.check(folder, found.files)
        self._repository = TemporaryDirectory(prefix="foretell-")
        place = Path(self._repository.name, found.name, found.version)
        place.parent.mkdir()
        place.symlink_to(folder)
        # Without the variables of the environment, which are for a server.
        settings = Settings.model_construct(
            models=Path(self._repository.name), device=device, timeout_seconds=_SECONDS
        )
        metrics = Metrics()
        try:
            self._engine = LocalEngine(load(settings, metrics), metrics)
        except StartError as error:
            self._repository.cleanup()
            temporary = f"model repository {self._repository.name}"
            raise RefusedError(str(error).replace(temporary, str(folder))) from None
        app = httpx.ASGITransport(create_app(settings, self._engine))
        self._transport = _Transport(app)
        self.client = Client("http://bundle", key="", timeout=_SECONDS, transport=self._transport)

    def close(self) -> None:
        """Free the resources of the bundle."""
        self._transport.run(self._engine.close())
        # This closes the transport, too.
        self.client.close()
        self._repository.cleanup()


class _Transport(httpx.BaseTransport):
    """Runs an asynchronous transport on an event loop in its own thread.

    The thread is for callers inside an event loop, such as notebooks.

    Args:
        inner: Asynchronous transport.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bundle")
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop."""
        return self._thread.submit(self._runner.run, coroutine).result()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.BaseTransport`."""
        return self.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        assert isinstance(answer.stream, httpx.AsyncByteStream)  # noqa: S101 - an async transport
        content = b"".join([part async for part in answer.stream])
        stream = httpx.ByteStream(content)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)

    def close(self) -> None:
        """See `httpx.BaseTransport`."""
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()
