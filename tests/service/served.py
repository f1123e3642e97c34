"""Bundles with a manifest of one word, and their models."""

from __future__ import annotations

import threading
from collections.abc import Set
from pathlib import Path
from typing import Any

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import digest_of
from foretell.service.engine.limits import Memory
from foretell.service.engine.policy import Policy
from foretell.service.engine.repository import Repository
from foretell.service.settings import VersionChoice


def place(repository: Path, name: str, version: str, content: str = "good") -> Path:
    """Write a bundle, or change it; content `bad …` makes it refused."""
    folder = repository / name / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / layout.MANIFEST).write_text(content)
    return folder


def remove(repository: Path, name: str, version: str) -> None:
    (repository / name / version / layout.MANIFEST).unlink()
    (repository / name / version).rmdir()


class Served:
    """A model that only has its bundle's content.

    Args:
        folder: Folder of the bundle.

    Attributes:
        content: Content of the bundle.
        digest: Digest of that content.
        on_demand: Whether the model is on demand.
        failure: Set by the test.
        closed: Set once the model is closed.
    """

    resident = True

    def __init__(self, folder: Path, content: str = "good") -> None:
        self.on_demand = False
        self.name, self.version = folder.parent.name, folder.name
        self._folder = folder
        self.content = content
        self.digest = digest_of(content.encode())
        self.failure: str | None = None
        self.closed = threading.Event()

    def is_of_folder(self) -> bool:
        return (self._folder / layout.MANIFEST).read_text() == self.content

    def load(self) -> None:
        pass

    def close(self, timeout: float) -> None:
        self.closed.set()


class Opener:
    """Opens bundles, and counts them.

    Attributes:
        opened: `name@version` of every attempt.
        gate: Opening waits for it.
    """

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, folder: Path) -> Served:
        name, version = folder.parent.name, folder.name
        content = (folder / layout.MANIFEST).read_text()
        self.opened.append(f"{name}@{version}")
        assert self.gate.wait(30)
        if content.startswith("bad"):
            raise BundleError(content)
        return Served(folder, content)


class Recorder:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.changes = 0

    def loaded(self, name: str, version: str, seconds: float) -> None:
        assert seconds >= 0
        self.events.append(f"loaded {name}@{version}")

    def refused(self, name: str, version: str) -> None:
        self.events.append(f"refused {name}@{version}")

    def changed(self) -> None:
        self.changes += 1

    def keep(self, versions: Set[tuple[str, str]]) -> None:
        """Ignore it: other calls report what is removed."""


class Scene:
    """A repository of such bundles, and records of its actions.

    Attributes:
        open: The function that opens bundles.
        observer: The observer of its changes.
    """

    def __init__(
        self,
        folder: Path,
        versions: VersionChoice = "all",
        *,
        request_seconds: float = 0.0,
        watch_seconds: float | None = None,
        memory: Memory | None = None,
        mirror: Any = None,
        **pins: str,
    ) -> None:
        self.folder = folder
        self.open = Opener()
        self.observer = Recorder()
        self.repository = Repository(
            folder,
            self.open,
            self.observer,
            mirror=mirror,
            policy=Policy(versions, pins),
            watch_seconds=watch_seconds,
            memory=memory,
            request_seconds=request_seconds,
        )

    @classmethod
    def started(cls, folder: Path, *references: str, request_seconds: float = 0.0) -> Scene:
        """A started repository with these bundles."""
        scene = cls(folder, request_seconds=request_seconds)
        for reference in references:
            scene.place(reference)
        scene.repository.start()
        return scene

    def place(self, reference: str, content: str = "good") -> None:
        place(self.folder, *reference.split("@"), content)

    def find(self, reference: str | None) -> Served:
        model = self.repository.registry.find(reference)
        assert isinstance(model, Served)
        return model

    @property
    def has(self) -> list[str]:
        return [f"{model.name}@{model.version}" for model in self.repository.registry.models]

    @property
    def states(self) -> dict[str, str]:
        """State of every known version, by `name@version`."""
        entries = self.repository.registry.entries()
        return {f"{entry.name}@{entry.version}": entry.state for entry in entries}
