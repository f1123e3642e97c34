from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.waiting import WaitingRuntime
from foretell.service.engine.batcher import Batcher
from foretell.service.engine.runtime import Runtime
from foretell.service.errors import ModelFailedError, from_wire
from foretell.service.ray import engine as module
from foretell.service.ray.engine import Held
from foretell.service.ray.model import Answer, key_of
from foretell.service.ray.tally import Tally
from foretell.service.settings import DeviceChoice, Settings
from tests.service.bundles import Spec, rewrite_manifest, write_bundle
from tests.service.ray.local import Calls, LocalEngine

PATIENCE = 30.0


def windows(value: float = 1.0) -> dict[str, np.ndarray]:
    return {"history": np.full((1, 8, 1), value, np.float32)}


def run(asking: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(asking, PATIENCE))


@asynccontextmanager
async def engine_of(
    folder: Path,
    open_runtime: Callable[[DeviceChoice], Runtime] = Runtime,
    tally: Tally | None = None,
    **settings: object,
) -> AsyncIterator[LocalEngine]:
    own = Settings(models=folder, device="cpu", **settings)
    engine = LocalEngine(own, Calls(tally or Tally()), open_runtime)
    try:
        yield engine
    finally:
        await engine._teller.close()
        engine.held.clear()
        engine._batcher.close(5)


def failure(answer: Answer) -> Exception:
    assert answer.error is not None
    return from_wire(answer.error)


def test_it_runs_what_it_is_asked_for(repository: Path) -> None:
    tally = Tally()

    async def ask() -> None:
        # While the first is run, however slow this machine is, the others come.
        async with engine_of(repository, WaitingRuntime, tally, max_batch=8) as engine:
            key = key_of(repository / "one" / "1")
            answers = await asyncio.gather(
                *(engine.run(key, windows(each), (), PATIENCE, False) for each in range(20))
            )
            for value, answer in enumerate(answers):
                assert answer.error is None
                assert answer.outputs["forecast"].tolist() == [[[value]] * 4]
                assert answer.waited >= 0
                assert answer.ran > 0
            # Those that wait share batches, as Ray's own batching would have it.
            assert max(answer.batch for answer in answers) > 1
            assert len(engine.held) == 1
            # What was counted goes there every second, and is counted here no more.
            await engine._teller.tell()
            counts = tally._metrics.counts
            assert counts.count("foretell_model_loads", "one", "1", "loaded") == 1

    run(ask())


def test_attention_is_what_was_asked_for(repository: Path) -> None:
    async def ask() -> None:
        async with engine_of(repository) as engine:
            key = key_of(repository / "two" / "1")
            plain = await engine.run(key, windows(), (), PATIENCE, False)
            assert plain.outputs.keys() == {"forecast"}
            name = "encoder.0.self.weights"
            found = await engine.run(key, windows(), (name,), PATIENCE, False)
            assert found.outputs.keys() == {"forecast", name}

    run(ask())


def test_a_bundle_that_is_refused_is_not_tried_at_once_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        async with engine_of(repository) as engine:
            folder = repository / "one" / "1"
            (folder / "weights.bin").write_bytes(b"damaged")
            key = key_of(folder)
            for _ in range(2):
                error = failure(await engine.run(key, windows(), (), PATIENCE, False))
                assert str(error) == "one@1 was refused by an engine; its log says why"
                assert error.status == 503  # type: ignore[attr-defined]
            refused = ("foretell_model_loads", "one", "1", "refused")
            assert engine.metrics.counts.count(*refused) == 1
            engine._refused[key] = 0.0
            await engine.run(key, windows(), (), PATIENCE, False)
            assert engine.metrics.counts.count(*refused) == 2

    run(ask())


def test_a_bundle_that_is_not_the_doors_is_not_loaded(tmp_path: Path) -> None:
    async def ask() -> None:
        folder = write_bundle(tmp_path, Spec(name="one"))
        async with engine_of(tmp_path) as engine:
            key = key_of(folder)
            rewrite_manifest(folder, Spec(name="one", changes={"parameters": 7}))
            for wrong in (key, "one@2#00"):
                error = failure(await engine.run(wrong, windows(), (), PATIENCE, False))
                assert "has just been changed; ask again" in str(error)
            # It is no fault of the bundle's.
            assert not engine._refused
            changed = await engine.run(key_of(folder), windows(), (), PATIENCE, False)
            assert changed.error is None

    run(ask())


def test_a_bundle_that_does_not_fit_is_refused(repository: Path) -> None:
    async def ask() -> None:
        async with engine_of(repository, max_memory_bytes=1) as engine:
            key = key_of(repository / "one" / "1")
            assert "refused" in str(failure(await engine.run(key, windows(), (), 9.0, False)))

    run(ask())


def test_a_full_queue_says_so_and_what_was_admitted_continues(repository: Path) -> None:
    async def ask() -> None:
        async with engine_of(repository, max_queue=1, max_inputs=1) as engine:
            key = key_of(repository / "one" / "1")
            await engine.run(key, windows(), (), PATIENCE, False)
            with held_up(engine._batcher):
                waiting = asyncio.ensure_future(engine.run(key, windows(), (), PATIENCE, False))
                await until(lambda: engine.held[key].model.usage.windows == 1)
                refused = failure(await engine.run(key, windows(), (), PATIENCE, False))
                assert type(refused).__name__ == "QueueFullError"
                more = asyncio.ensure_future(engine.run(key, windows(), (), PATIENCE, True))
                await until(lambda: engine.held[key].model.usage.windows == 2)
            assert (await waiting).error is None
            assert (await more).error is None

    run(ask())


def test_a_run_that_is_cancelled_gives_up_its_place(repository: Path) -> None:
    async def ask() -> None:
        async with engine_of(repository) as engine:
            key = key_of(repository / "one" / "1")
            await engine.run(key, windows(), (), PATIENCE, False)
            with held_up(engine._batcher):
                waiting = asyncio.ensure_future(engine.run(key, windows(), (), PATIENCE, False))
                usage = engine.held[key].model
                await until(lambda: usage.usage.windows == 1)
                waiting.cancel()
                await until(lambda: usage.usage.windows == 0)

    run(ask())


def test_who_leaves_while_a_model_is_loaded_stops_it_for_nobody(repository: Path) -> None:
    async def ask() -> None:
        async with engine_of(repository) as engine:
            key = key_of(repository / "one" / "1")
            await engine._loading.acquire()
            first, second = (
                asyncio.ensure_future(engine.run(key, windows(), (), PATIENCE, False))
                for _ in range(2)
            )
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            engine._loading.release()
            assert (await second).error is None
            await until(lambda: engine.held[key].model.usage.bytes == 0)
            assert first.cancelled()

    run(ask())


def test_what_has_to_go_finishes_what_it_accepted(repository: Path) -> None:
    async def ask() -> None:
        async with engine_of(repository) as engine:
            key = key_of(repository / "one" / "1")
            await engine.run(key, windows(), (), PATIENCE, False)
            with held_up(engine._batcher):
                waiting = asyncio.ensure_future(engine.run(key, windows(), (), PATIENCE, False))
                await until(lambda: engine.held[key].model.usage.windows == 1)
                held = engine.held.pop(key)
                leaving = asyncio.ensure_future(asyncio.to_thread(held.__del__))
            await leaving
            assert (await waiting).error is None
            late = held.model
            del held
            with pytest.raises(Exception, match="stopping"):
                late.submit(windows(), deadline=1e18)

    run(ask())


def test_it_closes_a_model_once() -> None:
    class Closed:
        closed = 0

        def close(self, timeout: float) -> None:
            assert timeout == 3.0
            Closed.closed += 1

    held = Held(Closed(), 3.0)  # type: ignore[arg-type]
    held.__del__()
    del held
    assert Closed.closed == 1


def test_its_health(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with engine_of(repository) as engine:
            engine.check_health()
            with held_up(engine._batcher):
                monkeypatch.setattr(module, "_STUCK_SECONDS", -1.0)
                with pytest.raises(ModelFailedError, match="a batch has run"):
                    engine.check_health()

    run(ask())


@contextmanager
def held_up(batcher: Batcher) -> Iterator[None]:
    """Have a batcher's only worker be busy."""
    began, over = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        began.set()
        over.wait(PATIENCE)

    batcher.on_workers(wait)
    assert began.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
