"""Ray's handles without Ray: what is called is an object of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ray.exceptions import ActorDiedError

from foretell.service.engine.runtime import Runtime
from foretell.service.ray.engine import Engine, Held
from foretell.service.ray.handles import Handle
from foretell.service.settings import DeviceChoice, Settings


class Calls:
    """A handle.

    Attributes:
        target: Whose methods are called.
        raises: What the next calls raise instead, the first one first.
        given: Of every call so far, its model and its arguments.
    """

    def __init__(self, target: object, method: str = "", model: str = "") -> None:
        self.target = target
        self.raises: list[Exception] = []
        self.given: list[tuple[str, tuple[Any, ...]]] = []
        self._method = method
        self._model = model

    def options(self, *, method_name: str, multiplexed_model_id: str = "") -> Calls:
        made = Calls(self.target, method_name, multiplexed_model_id)
        made.raises, made.given = self.raises, self.given
        return made

    def remote(self, *given: Any) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self._call(given))

    async def _call(self, given: tuple[Any, ...]) -> Any:
        self.given.append((self._model, given))
        if self.raises:
            raise self.raises.pop(0)
        return await getattr(self.target, self._method)(*given)


class LocalEngine(Engine):
    """An engine that forgets no model.

    Attributes:
        held: Those it has, by key.
    """

    def __init__(
        self,
        settings: Settings,
        tally: Handle,
        open_runtime: Callable[[DeviceChoice], Runtime] = Runtime,
    ) -> None:
        super().__init__(settings, tally, open_runtime)
        self.held: dict[str, Held] = {}
        self._loading = asyncio.Lock()

    async def hold(self, key: str) -> Held:
        async with self._loading:
            if key not in self.held:
                self.held[key] = await self.open(key)
        return self.held[key]


def died() -> ActorDiedError:
    """What a call raises whose replica was killed."""
    return ActorDiedError()
