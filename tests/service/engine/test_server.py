"""The engine's server for its workers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle.calibration import Calibration
from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.client import EngineClient
from foretell.service.engine.learned import Key, Offsets
from foretell.service.engine.registry import Model, Registry
from foretell.service.engine.server import EngineServer, _load
from foretell.service.errors import (
    ModelFailedError,
    QueueFullError,
    ServiceError,
    UnknownModelError,
)
from foretell.service.metrics import Metrics
from tests.service.engine.conftest import (
    PATIENCE,
    System,
    ask,
    deadline,
    outcome,
    until_async,
    windows,
)
from tests.service.loops import on_loop
from tests.support.bundles import Spec, write_bundle


@on_loop
async def test_windows_of_all_workers_share_a_batch(models: Path, tmp_path: Path) -> None:
    write_bundle(models, Spec(name="slow", burn=300))
    system = System(models, tmp_path / "engine", max_batch=64)
    async with system.engine() as engine, system.worker() as one, system.worker() as two:
        first = one.registry.find("slow").submit(windows(), deadline=deadline())
        async with asyncio.timeout(PATIENCE):
            while engine.repository.busy_seconds < 0:
                await asyncio.sleep(0.001)
        runs = [
            worker.registry.find("slow").submit(windows(), deadline=deadline())
            for _ in range(8)
            for worker in (one, two)
        ]
        for each in (first, *runs):
            await outcome(each)
        # These runs arrived while the first one ran.
        assert [each.batch for each in runs] == 16 * [16]


@on_loop
async def test_errors_of_runs_keep_their_types_and_members(system: System, models: Path) -> None:
    write_bundle(models, Spec(name="fragile", fails=True))
    async with system.engine(), system.worker() as worker:
        fragile = worker.registry.find("fragile")
        with pytest.raises(ModelFailedError):
            await outcome(fragile.submit(windows(value=1.0), deadline=deadline()))
        found = await outcome(fragile.submit(windows(value=0.5), deadline=deadline()))
        assert found["forecast"][0, 0, 0] == 0.5
        model = worker.registry.find("repeat")
        runs = [model.submit(windows(64), deadline=deadline()) for _ in range(8)]
        results = await asyncio.gather(*map(outcome, runs), return_exceptions=True)
        refused = [each for each in results if isinstance(each, BaseException)]
        assert refused
        for error in refused:
            assert type(error) is QueueFullError
            assert error.retry_after >= 1
            assert "windows are waiting" in error.message


@on_loop
async def test_cancelled_runs_and_lost_workers_leave_the_queue(
    models: Path, tmp_path: Path
) -> None:
    write_bundle(models, Spec(name="slow", burn=40))
    system = System(models, tmp_path / "engine", max_batch=1, max_queue=64, max_inputs=64)
    async with system.engine() as engine, system.worker() as worker, system.worker() as other:

        def depth() -> int:
            [usage] = [own.usage for own in engine.repository.models if own.name == "slow"]
            return usage.windows

        model = worker.registry.find("slow")
        first = model.submit(windows(30), deadline=deadline())
        other.registry.find("slow").submit(windows(20), deadline=deadline())
        await until_async(lambda: depth() > 30)
        assert first.cancel()
        assert first.done()
        await until_async(lambda: depth() <= 20)
        # The work of a worker that disconnects is cancelled.
        await other.close()
        await until_async(lambda: depth() == 0)


@on_loop
async def test_call_that_fails_is_answered_with_500(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("Stale file handle")

    async with system.engine() as engine, system.worker() as worker:
        engine.repository.index = fail  # type: ignore[assignment,method-assign]
        with pytest.raises(ServiceError, match="the server failed; its log says why") as raised:
            async with asyncio.timeout(PATIENCE):
                await worker.index()
        assert raised.value.status == 500
    assert "Stale file handle" in caplog.text


@on_loop
async def test_result_that_cannot_be_sent_fails_only_its_run(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with system.engine(), system.worker() as worker:
        model, (connection,) = worker.registry.find(None), system.server._workers
        ended, numbers = EngineServer.ended, []

        def together(server: EngineServer, *given: Any) -> None:
            numbers.append(given[1])
            server._woken = len(numbers) < 3
            ended(server, *given)

        plain = ipc.encode

        def encode(message: ipc.Message, *given: Any) -> Any:
            bad = isinstance(message, (ipc.Result, ipc.Failed))
            if bad and message.number == numbers[0]:
                failures.append(message)
                if len(failures) < 3:
                    raise OverflowError("an integer of more than 64 bits")
            return plain(message, *given)

        failures: list[ipc.Message] = []
        monkeypatch.setattr(EngineServer, "ended", together)
        monkeypatch.setattr(ipc, "encode", encode)
        runs = [model.submit(windows(), deadline=deadline()) for _ in range(3)]
        results = await asyncio.gather(*map(outcome, runs), return_exceptions=True)
        assert sum(isinstance(each, ModelFailedError) for each in results) == 1
        assert sum(isinstance(each, dict) for each in results) == 2
        assert not connection.runs
    assert "an error could not be sent" in caplog.text


@on_loop
async def test_stopping_engine_answers_its_runs(system: System) -> None:
    begun, released = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        begun.set()
        assert released.wait(PATIENCE)

    async def release() -> None:
        await until_async(lambda: system.server.closing)
        released.set()

    async with contextlib.AsyncExitStack() as stack:
        async with system.engine() as engine:
            worker = await stack.enter_async_context(system.worker())
            scheduler = engine.repository._scheduler
            assert scheduler is not None
            scheduler.on_threads(hold)
            assert begun.wait(PATIENCE)
            going = worker.registry.find(None).submit(windows(4), deadline=deadline())
            await until_async(lambda: any(each.runs for each in system.server._workers))
            # Released after the end of the engine was requested.
            releasing = asyncio.create_task(release())
        await releasing
        assert (await outcome(going))["forecast"].shape == (4, 4, 1)


@on_loop
async def test_engine_answers_while_it_writes_an_update(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, released = threading.Event(), threading.Event()

    def load_of(model: Model) -> tuple[ipc.Load, Arrays]:
        writing.set()
        assert released.wait(PATIENCE)
        return _load(model)

    monkeypatch.setattr("foretell.service.engine.server._load", load_of)

    async with system.engine():
        worker = EngineClient(system.path, Metrics())
        starting = asyncio.ensure_future(worker.start())
        await until_async(writing.is_set)
        _, other = await asyncio.open_unix_connection(system.path)
        await until_async(lambda: system.server.workers == 2)
        released.set()
        await starting
        assert worker.registry.loaded("repeat") == ["1"]
        await worker.close()
        other.close()


@on_loop
async def test_update_that_cannot_be_written_loses_no_worker(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    system = System(models, tmp_path / "engine")
    path = "foretell.service.engine.server._load"

    def fail(_: object) -> None:
        raise ValueError("a manifest that cannot be written")

    async with system.engine() as engine, system.worker() as worker:
        with monkeypatch.context() as patched:
            patched.setattr(path, fail)
            write_bundle(models, Spec(version="2"))
            await engine.load("repeat", "2")
            message = "what is served could not be sent to the HTTP workers"
            await until_async(lambda: message in caplog.text)
            late = EngineClient(system.path, Metrics())
            starting = asyncio.ensure_future(late.start())
            # Once for the new version, and once for the new worker.
            await until_async(lambda: caplog.text.count(message) == 2)
            await asyncio.sleep(0.5)
            assert caplog.text.count(message) == 2
            assert worker.registry.loaded("repeat") == ["1"]
        await engine.unload("repeat", "1")
        await starting
        await until_async(lambda: worker.registry.loaded("repeat") == ["2"])
        assert late.registry.loaded("repeat") == ["2"]
        assert (await ask(worker))["forecast"].shape == (1, 4, 1)
        await late.close()


@on_loop
async def test_worker_lost_during_an_update_does_not_delay_others(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(models, tmp_path / "engine")
    began, goes_on = threading.Event(), threading.Event()
    plain = EngineServer._updates

    def updates(server: EngineServer, *given: Any) -> Any:
        began.set()
        goes_on.wait(PATIENCE)
        return plain(server, *given)

    async with system.engine(), system.worker() as stays:
        leaving = EngineClient(system.path, Metrics())
        await leaving.start()
        monkeypatch.setattr(EngineServer, "_updates", updates)
        write_bundle(models, Spec(name="new"))
        loading = asyncio.ensure_future(leaving.load("new", None))
        await until_async(began.is_set)
        await leaving.close()
        await until_async(lambda: system.server.workers == 1)
        goes_on.set()
        await until_async(lambda: "new" in {model.name for model in stays.registry.models})
        await asyncio.gather(loading, return_exceptions=True)


@on_loop
async def test_load_waits_briefly_for_a_silent_worker(
    system: System, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.server._WRITE_SECONDS", 0.05)
    async with system.engine(), system.worker() as worker:
        _, silent = await asyncio.open_unix_connection(system.path)
        await until_async(lambda: system.server.workers == 2)
        write_bundle(models, Spec(version="2"))
        async with asyncio.timeout(PATIENCE / 3):
            await worker.load("repeat", "2")
        assert system.server.workers == 2
        silent.close()


@on_loop
async def test_many_requests_for_unknown_models_cost_few_calls_and_updates(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed, published, tasks = [], [], []
    call, updates = EngineServer.call, EngineServer._updates

    async def counted(server: EngineServer, method: str, *given: Any) -> Any:
        refreshed.append(method)
        tasks.append(len(server._tasks))
        return await call(server, method, *given)

    def slow(server: EngineServer, *given: Any) -> Any:
        published.append(given)
        time.sleep(0.05)
        return updates(server, *given)

    async with system.engine() as engine, system.worker() as worker:
        monkeypatch.setattr(EngineServer, "call", counted)
        monkeypatch.setattr(EngineServer, "_updates", slow)
        end = time.monotonic() + 1

        async def ask() -> None:
            while time.monotonic() < end:
                with pytest.raises(UnknownModelError):
                    await worker.find(partial(Registry.find, reference="nope"))

        requests = [asyncio.ensure_future(ask()) for _ in range(40)]
        await asyncio.sleep(0.1)
        published.clear()
        engine.metrics.changed()
        await asyncio.sleep(0.3)
        refreshed.clear()
        unknown = partial(Registry.find, reference="nope")
        await asyncio.gather(*(worker.find(unknown) for _ in range(100)), return_exceptions=True)
        # The running refresh, the next one, and those of `requests` meanwhile.
        assert len(refreshed) < 20
        await asyncio.gather(*requests)
        # One change.
        assert len(published) == 1
        assert max(tasks) <= 2


@on_loop
async def test_workers_hear_of_learned_and_forgotten_offsets(system: System) -> None:
    levels, key = np.array([0.1, 0.9]), Key("repeat", "1", "tenant", "a")
    steps = np.arange(16, dtype=np.float32).reshape(2, 8, 1)
    offsets = Offsets(Calibration(levels, steps), 5, "digest")
    async with system.engine() as engine:
        engine.learned.put(key, offsets)
        async with system.worker() as one, system.worker() as two:
            for worker in (one, two):
                await until_async(lambda worker=worker: bool(worker.learned.items()))
                [(known, found)] = worker.learned.items()
                assert (known, found.origins, found.stored) == (key, 5, "digest")
                np.testing.assert_array_equal(found.calibration.levels, levels)
                np.testing.assert_array_equal(found.calibration.offsets, steps)
            engine.learned.put(key.of_namespace, offsets)
            await until_async(lambda: key.of_namespace in dict(two.learned.items()))
            engine.learned.forget_series("tenant", "a")
            for worker in (one, two):
                await until_async(lambda worker=worker: key not in dict(worker.learned.items()))
                assert [each for each, _ in worker.learned.items()] == [key.of_namespace]


@on_loop
async def test_worker_forgets_the_offsets_of_a_lost_engine(system: System) -> None:
    steps = np.zeros((2, 8, 1), np.float32)
    offsets = Offsets(Calibration(np.array([0.1, 0.9]), steps), 5, "digest")
    old, new = (Key("repeat", "1", "tenant", name) for name in ("old", "new"))
    async with contextlib.AsyncExitStack() as stack:
        async with system.engine() as engine:
            engine.learned.put(old, offsets)
            worker = await stack.enter_async_context(system.worker())
            await until_async(lambda: old in dict(worker.learned.items()))
        async with system.engine() as engine:
            engine.learned.put(new, offsets)
            await until_async(lambda: new in dict(worker.learned.items()))
            assert old not in dict(worker.learned.items())
