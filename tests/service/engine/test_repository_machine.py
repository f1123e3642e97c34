"""Bundles come, change and go, models are loaded, unloaded and fail: a repository keeps up."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from foretell.bundle import layout, serving
from foretell.bundle.errors import BundleError
from foretell.bundle.serving import NOTHING, Challenger, Serving
from foretell.service.engine.registry import IndexEntry, State
from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.settings import VersionChoice
from tests.service.served import Scene, Served, remove
from tests.support.waiting import until

Key = tuple[str, str]
NAMES, VERSIONS = ("one", "two"), ("1", "2", "10")
CONTENTS = ("good", "better", "bad weights", "bad news")
ROLES = st.builds(
    Serving,
    pin=st.sampled_from([None, *VERSIONS[:2]]),
    challenger=st.sampled_from([None, Challenger(version="10", share=0.5)]),
)


@dataclass(frozen=True)
class ExpectedVersion:
    """Expected state of a version; `content` is the content of its model, if it has one."""

    content: str = ""
    refused: str = ""
    wanted: bool = False
    failed: bool = False


def order(key: Key) -> tuple[str, int]:
    return key[0], int(key[1])


class RepositoryMachine(RuleBasedStateMachine):
    """A repository, and a simple model of its expected states."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: dict[Key, tuple[str, int]] = {}
        self.seen: dict[str, dict[str, int]] = {}
        self.known: dict[Key, ExpectedVersion] = {}
        # Pin and challenger of each model: on disk, as last read, and as last handled.
        self.roles: dict[str, Serving] = {}
        self.read: dict[str, Serving] = {}
        self.acted: dict[str, Serving] = {}
        # The version that each name means, and its challenger.
        self.pointed: dict[str, str] = {}
        self.challengers: dict[str, tuple[str, float]] = {}
        self.events: list[str] = []
        self.models: set[Served] = set()
        self.writes = 0

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            # Hypothesis has given up before `start`.
            return
        self.scene.repository.close(5)
        assert all(model.closed.is_set() for model in self.models)
        self._patch.undo()
        self._folder.cleanup()

    @initialize(
        choice=st.sampled_from(["all", "latest"]),
        pins=st.sampled_from([{}, {"one": "2"}]),
        bundles=st.dictionaries(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(VERSIONS)), st.sampled_from(CONTENTS)
        ),
        roles=st.dictionaries(st.sampled_from(NAMES), ROLES),
    )
    def start(
        self,
        choice: VersionChoice,
        pins: dict[str, str],
        bundles: dict[Key, str],
        roles: dict[str, Serving],
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._patch = pytest.MonkeyPatch()
        # The repository polls only when a rule calls it.
        self._patch.setattr("foretell.service.engine.repository._PRUNE_SECONDS", 3600)
        self.latest, self.pins, self.pointed = choice == "latest", pins, {**pins}
        self.scene = Scene(Path(self._folder.name), choice, watch_seconds=3600, **pins)
        for key, content in bundles.items():
            self.place(key, content)
        for name, each in roles.items():
            self.assign(name, each)
        self.seen = self._present()
        for name in sorted(self.seen):
            self.read[name] = self.roles.get(name, NOTHING)
            self._act(name)
            chosen = self._chosen(name)
            older = [each for each in self._on_disk(name)[::-1] if each not in chosen]
            falls_back = self.latest and self._serving(name).pin is None
            for version in [*chosen, *(older if falls_back else [])]:
                if version in chosen or not self._loaded(name):
                    self._load(name, version, wanted=version in chosen)
        self.scene.repository.start()

    @rule(
        key=st.tuples(st.sampled_from(NAMES), st.sampled_from(VERSIONS)),
        content=st.sampled_from(CONTENTS),
    )
    def place(self, key: Key, content: str) -> None:
        self.writes += 1
        self.scene.place("@".join(key), content)
        manifest = self.scene.folder / key[0] / key[1] / layout.MANIFEST
        os.utime(manifest, ns=(self.writes, self.writes))
        self.disk[key] = content, self.writes

    @rule(name=st.sampled_from(NAMES), roles=ROLES)
    def assign(self, name: str, roles: Serving) -> None:
        (self.scene.folder / name).mkdir(exist_ok=True)
        serving.write(self.scene.folder, name, roles)
        self.roles[name] = roles

    @precondition(lambda self: self.disk)
    @rule(data=st.data(), whole=st.sampled_from([False, False, True]))
    def remove(self, data: st.DataObject, whole: bool) -> None:
        keys = sorted(self.disk)
        for key in keys if whole else [data.draw(st.sampled_from(keys))]:
            remove(self.scene.folder, *key)
            del self.disk[key]

    @precondition(lambda self: any(each.content for each in self.known.values()))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        loaded = sorted(key for key, each in self.known.items() if each.content)
        key = data.draw(st.sampled_from(loaded))
        self.scene.find("@".join(key)).failure = "lost"
        self.scene.observer.changes += 1
        self.known[key] = replace(self.known[key], failed=True)

    @rule(name=st.sampled_from([*NAMES, "three"]), version=st.sampled_from([None, *VERSIONS]))
    def load(self, name: str, version: str | None) -> None:
        error: type[Exception] | None = None
        if not self._on_disk(name):
            error = UnknownModelError
        elif version and (name, version) not in self.disk:
            error = UnknownVersionError
        else:
            self.read[name] = self.roles.get(name, NOTHING)
            pin = self._serving(name).pin
            is_missing = pin is not None and (name, pin) not in self.disk
            chosen = [version] if version else self._chosen(name)
            if (self.latest and not version and is_missing) or not self._load_all(
                name, chosen, alone=version is None
            ):
                error = LoadFailedError
        self._expect(error, lambda: self.scene.repository.load(name, version))

    @rule(name=st.sampled_from([*NAMES, "three"]), version=st.sampled_from([None, *VERSIONS]))
    def unload(self, name: str, version: str | None) -> None:
        indexed = {key[1] for key in {*self.known, *self.disk} if key[0] == name}
        error: type[Exception] | None = None
        if not indexed:
            error = UnknownModelError
        elif version and version not in indexed:
            error = UnknownVersionError
        else:
            for each in [version] if version else indexed:
                self._unload(name, each)
        self._expect(error, lambda: self.scene.repository.unload(name, version))

    @rule()
    def poll(self) -> None:
        found = self._present()
        if self.seen and not found:
            self._expect(BundleError, self.scene.repository.poll)
            return
        for name in sorted({*self.seen, *found, *self.acted}):
            seen, present = self.seen.get(name, {}), found.get(name, {})
            self.read[name] = self.roles.get(name, NOTHING)
            roles, before = self._serving(name), self.acted.get(name, NOTHING)
            if seen == present and roles == before:
                continue
            removed = [version for version in seen if version not in present]
            news = roles.versions - before.versions
            loads = [
                each
                for each in self._chosen(name)
                if present[each] != seen.get(each) or each in news
            ]
            if self.latest and (roles != before or set(removed) & set(self._loaded(name))):
                loads = self._chosen(name)
            self._point(name)
            if loads:
                self._load_all(name, loads, alone=self.latest)
            for version in removed:
                self._unload(name, version)
            self._act(name)
        self.seen = found
        self.scene.repository.poll()

    @rule()
    def prune(self) -> None:
        # If all bundles are missing at once, so is their volume.
        for key, known in [*self.known.items()] if self.disk else ():
            if known.refused and key not in self.disk:
                if known.content:
                    self.known[key] = replace(known, refused="")
                else:
                    self.seen.get(key[0], {}).pop(key[1], None)
                    del self.known[key]
        self.scene.repository.prune()

    @invariant()
    def keeps_up(self) -> None:
        repository = self.scene.repository
        until(lambda: not any(one.name.startswith("close-") for one in threading.enumerate()))
        loaded = sorted((key for key, each in self.known.items() if each.content), key=order)
        assert self.scene.has == ["@".join(key) for key in loaded]
        served = {key: self.scene.find("@".join(key)) for key in loaded}
        self.models |= {*served.values()}
        assert {model for model in self.models if not model.closed.is_set()} == {*served.values()}
        for key, model in served.items():
            assert model.content == self.known[key].content
        assert self.scene.observer.events == self.events
        self._check_names()
        entries = [self._entry(key) for key in sorted(self.known, key=order)]
        assert repository.registry.entries() == entries
        only_on_disk = [self._entry(key) for key in self.disk.keys() - self.known.keys()]
        assert repository.index() == sorted(
            [*entries, *only_on_disk], key=lambda one: order(one[:2])
        )
        report = {
            f"{one.name}@{one.version}": "ready" if one.state is State.READY else one.reason
            for one in entries
        }
        for pin in self.pointed.items():
            report.setdefault("@".join(pin), "pinned, and not loaded")
        assert repository.snapshot.report == report
        refused = {key[0] for key, one in self.known.items() if one.wanted and one.refused}
        answering = {name for name in NAMES if self._default(name)}
        failed = any(each.failed for each in self.known.values())
        ready = bool(answering) and {*refused, *self.pointed} <= answering and not failed
        assert repository.snapshot.ready == ready
        assert repository.registry.pins == self.pointed
        assert repository.registry.challengers == self.challengers

    def _check_names(self) -> None:
        for name in NAMES:
            version = self._default(name)
            known = any(key[0] == name for key in self.known)
            error = None if version else NotReadyError if known else UnknownModelError
            self._expect(error, lambda name=name: self.scene.find(name))
            assert not version or self.scene.find(name).version == version

    def _expect(self, error: type[Exception] | None, call: object) -> None:
        assert callable(call)
        if error is None:
            call()
        else:
            with pytest.raises(error):
                call()

    def _present(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (name, version), (_, written) in self.disk.items():
            found.setdefault(name, {})[version] = written
        return found

    def _on_disk(self, name: str) -> list[str]:
        return sorted((version for own, version in self.disk if own == name), key=int)

    def _loaded(self, name: str) -> list[str]:
        loaded = [key[1] for key, each in self.known.items() if key[0] == name and each.content]
        return sorted(loaded, key=int)

    def _default(self, name: str) -> str | None:
        loaded = self._loaded(name)
        if (pin := self.pointed.get(name)) is not None:
            return pin if pin in loaded else None
        return loaded[-1] if loaded else None

    def _chosen(self, name: str) -> list[str]:
        newest_first = self._on_disk(name)[::-1]
        if not self.latest:
            return newest_first
        roles = self._serving(name)
        first = roles.pin or newest_first[0] if newest_first else None
        wanted = [first, *({*roles.versions} - {first})]
        return [version for version in wanted if version in newest_first]

    def _serving(self, name: str) -> Serving:
        roles = self.read.get(name, NOTHING)
        if (pin := self.pins.get(name)) is None:
            return roles
        challenger = roles.challenger
        is_pinned = challenger is not None and challenger.version == pin
        return Serving(pin=pin, challenger=None if is_pinned else challenger)

    def _point(self, name: str) -> None:
        pin = self._serving(name).pin
        may_come = (name, pin) in self.disk and pin not in self._loaded(name)
        if pin is not None and may_come and self._default(name) is not None:
            # The version that answers stays until its successor is loaded.
            pin = self.pointed.get(name)
        self.pointed.pop(name, None)
        if pin is not None:
            self.pointed[name] = pin
        self.challengers.pop(name, None)
        if (challenger := self._serving(name).challenger) is not None:
            self.challengers[name] = challenger.version, challenger.share

    def _act(self, name: str) -> None:
        self._point(name)
        self.acted[name] = self._serving(name)

    def _load(self, name: str, version: str, *, wanted: bool = False) -> bool:
        key, content = (name, version), self.disk[name, version][0]
        known = self.known.get(key, ExpectedVersion())
        if known.content == content and not known.failed:
            self.known[key] = replace(known, refused="", wanted=True)
        elif content.startswith("bad"):
            self.known[key] = replace(known, refused=content, wanted=known.wanted or wanted)
            self.events.append(f"refused {name}@{version}")
        else:
            self.known[key] = ExpectedVersion(content, wanted=True)
            self.events.append(f"loaded {name}@{version}")
        return not self.known[key].refused

    def _load_all(self, name: str, versions: list[str], *, alone: bool) -> bool:
        loaded = [self._load(name, version) for version in versions]
        self._point(name)
        for version in self._loaded(name) if alone and all(loaded) else ():
            if version not in versions:
                self._unload(name, version)
        return all(loaded)

    def _unload(self, name: str, version: str) -> None:
        if (name, version) in self.known:
            del self.known[name, version]
            if (name, version) in self.disk:
                self.known[name, version] = ExpectedVersion()

    def _entry(self, key: Key) -> IndexEntry:
        known = self.known.get(key, ExpectedVersion())
        if known.content and not known.failed:
            return IndexEntry(*key, State.READY, known.refused)
        reason = "lost" if known.content else known.refused or "not loaded"
        return IndexEntry(*key, State.UNAVAILABLE, reason)


TestRepositoryMachine = cast("type", RepositoryMachine).TestCase
TestRepositoryMachine.settings = settings(stateful_step_count=20)
