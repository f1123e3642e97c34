"""A cache of fake models, which have no sessions and take no memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from foretell.bundle.errors import BundleError
from foretell.service.engine.cache import CacheEntry, ModelCache
from foretell.service.engine.limits import Memory
from foretell.service.engine.run import Run
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.usage import Limits
from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
)
from tests.service.conftest import Quiet
from tests.service.served import Recorder
from tests.support.waiting import until

PATIENCE = 30.0


class Fake:
    """A model whose session is only a flag; its runs may wait for the test."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.manifest: Any = SimpleNamespace(name=name, version="1")
        self.name, self.version, self.digest = name, "1", "sha256:0"
        self.folder = Path(f"/models/{name}/1")
        self.used = 0.0
        self.failure: str | None = None
        self.is_present = False
        self.evicted: float | None = None
        self.go_on = threading.Event()
        self.ran: list[float] = []
        self.entry = CacheEntry(self)
        self.queue = scene.scheduler.add(self.run, Limits(4, 4, 1000), Quiet())
        self.hold()

    def hold(self) -> None:
        self.queue.pause("g", partial(self.scene.cache.want, self.entry))

    def run(self, thread: int, graph: str, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self.is_present:
            raise NotReadyError("the model was closed before this was run")
        if self.name in self.scene.held:
            assert self.go_on.wait(PATIENCE)
        self.ran += feeds["history"][:, 0].tolist()
        return {"history": feeds["history"] + 1}

    def open(self) -> list[Run]:
        self.scene.began.append(self.name)
        assert self.scene.gate.wait(PATIENCE)
        if self.name in self.scene.bad:
            raise BundleError(f"{self.folder}: bad weights")
        self.is_present, self.failure = True, None
        waited = self.queue.note_loaded()
        self.queue.resume("g", 4)
        return waited

    def evict(self, timeout: float) -> None:
        self.evicted = timeout
        self.hold()
        self.go_on.set()
        self.queue.settle(timeout)
        self.is_present = False

    def close(self) -> None:
        self.scene.cache.forget(self.entry)
        self.go_on.set()
        self.queue.close(PATIENCE)
        self.is_present = False


class CountingRecorder(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, float]] = []

    def evicted(self, name: str, version: str) -> None:
        self.events.append(f"evicted {name}@{version}")

    def waited(self, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.waits.append((outcome, seconds))


class CountingMemory(Memory):
    """A memory limit that counts models: `room` fit, and those in `never` do not fit at all."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(None)
        self._scene = scene
        self.room = 1000
        self.never: set[str] = set()

    def check(self, folder: Path) -> None:
        if len(self._scene.present) >= self.room:
            raise LoadFailedError(f"{folder}: needs more memory")

    def check_alone(self, folder: Path) -> None:
        if folder.parent.name in self.never:
            raise LoadFailedError(f"{folder}: never fits")


class Scene:
    """A cache of fakes, which are opened once `gate` is set."""

    def __init__(self, *, most: int | None = None, wait_seconds: float = PATIENCE) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.began: list[str] = []
        self.bad: set[str] = set()
        self.held: set[str] = set()
        self.counted = CountingRecorder()
        self.memory = CountingMemory(self)
        self.scheduler = Scheduler(4)
        self.models: dict[str, Fake] = {}
        self.cache = ModelCache(
            self.memory, self.counted, most=most, wait_seconds=wait_seconds, drain_seconds=7.0
        )

    @property
    def present(self) -> list[str]:
        return sorted(name for name, model in self.models.items() if model.is_present)

    def model(self, name: str) -> Fake:
        if name not in self.models:
            self.models[name] = Fake(self, name)
        return self.models[name]

    def entry(self, name: str) -> CacheEntry:
        return self.model(name).entry

    def ask(self, name: str, windows: int = 1, *, admitted: bool = False) -> Run:
        rows = np.full((windows, 2), 3.0, np.float32)
        model = self.model(name)
        model.used = time.monotonic()
        deadline = time.monotonic() + PATIENCE
        return model.queue.submit("g", {"history": rows}, deadline=deadline, admitted=admitted)

    def bring(self, *names: str) -> None:
        for name in names:
            assert self.ask(name).result(PATIENCE)
            # Its load has ended.
            until(lambda name=name: self.entry(name).load is None)


@contextmanager
def scenes() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def one(**given: Any) -> Scene:
        made.append(Scene(**given))
        return made[-1]

    # A collection for each evicted model would take long with all modules of the tests.
    with patch("foretell.service.engine.cache.gc"):
        yield one
        for scene in made:
            scene.gate.set()
            for model in scene.models.values():
                model.go_on.set()
            scene.cache.stop()
            scene.cache.join(PATIENCE)
            scene.scheduler.close(5)
            assert not scene.cache.going
