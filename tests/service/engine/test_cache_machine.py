"""Models are asked for, refused, evicted and closed: those in memory are those used last."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
)
from tests.service.engine.cached import PATIENCE, scenes

NAMES = st.sampled_from(["one", "two", "three", "four"])


class CacheMachine(RuleBasedStateMachine):
    """Models are asked for one after another: those in memory are those used last."""

    @initialize(most=st.sampled_from([1, 2, 3, None]))
    def start(self, most: int | None) -> None:
        self._scenes = scenes()
        self.scene = self._scenes.__enter__()(most=most)
        self.most = most or 1000
        # The least recently used first.
        self.present: list[str] = []
        self.events: list[str] = []
        self.closed: set[str] = set()

    def teardown(self) -> None:
        self._scenes.__exit__(None, None, None)

    @rule(name=NAMES, what=st.sampled_from(["bad", "never"]))
    def change(self, name: str, what: str) -> None:
        names = self.scene.bad if what == "bad" else self.scene.memory.never
        names ^= {name}

    @rule(room=st.sampled_from([0, 1, 2, 1000]))
    def change_memory(self, room: int) -> None:
        self.scene.memory.room = room

    @rule(name=NAMES)
    def ask(self, name: str) -> None:
        if name in self.closed:
            with pytest.raises(NotReadyError, match="the model is stopping"):
                self.scene.ask(name)
        elif self._expect(name):
            self.scene.bring(name)
        else:
            for _ in range(2):
                # The second time at once.
                with pytest.raises(NotReadyError, match=f"^{name}@1 could not be loaded; /readyz"):
                    self.scene.ask(name).result(PATIENCE)
            self.scene.entry(name).retry_at = 0.0

    @rule(name=NAMES, fails=st.booleans())
    def load(self, name: str, fails: bool) -> None:
        model = self.scene.model(name)
        if fails and name in self.present:
            model.failure = "lost"
            self.present.remove(name)
        if name in self.closed:
            with pytest.raises(NotReadyError, match="the model is stopping"):
                self.scene.cache.load(model.entry)
        elif self._expect(name):
            self.scene.cache.load(model.entry)
        else:
            with pytest.raises(LoadFailedError, match=f"^{name}/1: "):
                self.scene.cache.load(model.entry)
            assert model.entry.refused.startswith(f"{name}/1: ")
            model.entry.retry_at = 0.0

    @rule()
    def pin(self) -> None:
        fits = self._make_room("kept")
        with (
            nullcontext() if fits else pytest.raises(LoadFailedError),
            self.scene.cache.room(Path("/models/kept/1")),
        ):
            assert self.scene.present == sorted(self.present)

    @rule(name=NAMES)
    def close(self, name: str) -> None:
        self.scene.model(name).close()
        self.closed.add(name)
        self.present = [each for each in self.present if each != name]

    @invariant()
    def holds_those_used_last(self) -> None:
        assert self.scene.present == sorted(self.present)
        assert self.scene.counted.events == self.events
        for name, model in self.scene.models.items():
            assert model.queue.usage.bytes == 0, name
            assert model.evicted in (None, 7.0)

    def _expect(self, name: str) -> bool:
        if name in self.present:
            self.present.remove(name)
        elif not self._make_room(name) or name in self.scene.bad:
            self.events.append(f"refused {name}@1")
            return False
        else:
            self.events.append(f"loaded {name}@1")
        self.present.append(name)
        return True

    def _make_room(self, name: str) -> bool:
        memory = self.scene.memory
        if name in memory.never:
            return False
        while len(self.present) >= min(self.most, memory.room):
            if not self.present:
                return False
            self.events.append(f"evicted {self.present.pop(0)}@1")
        return True


TestCacheMachine = cast("type", CacheMachine).TestCase
TestCacheMachine.settings = settings(stateful_step_count=15)
