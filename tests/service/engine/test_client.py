"""A worker and the engine in two halves of one process, connected as processes are."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.client import EngineClient, _EngineConnection
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.loading import load
from foretell.service.engine.registry import IndexEntry, Model, Registry, State
from foretell.service.engine.run import Run
from foretell.service.engine.server import EngineServer, _load
from foretell.service.engine.statistics import StatisticsReport
from foretell.service.errors import (
    DeadlineExceededError,
    EngineLostError,
    LoadFailedError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
    ServiceError,
    UnknownModelError,
)
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.service.loops import on_loop
from tests.support.bundles import Spec, lag_stage, softmax_stage, write_bundle

_PATIENCE = 30.0


def windows(count: int = 1, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"history": np.full((count, 8, 1), value, np.float32)}


async def outcome(run: Run) -> dict[str, np.ndarray]:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    run.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
    async with asyncio.timeout(_PATIENCE):
        await done.wait()
    return run.result()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def deadline() -> float:
    return time.monotonic() + _PATIENCE


class Halves:
    """An engine that serves workers.

    Attributes:
        engine: Its own.
        path: Of its socket.
        server: What serves them, within `engine`.
    """

    def __init__(self, models: Path, path: Path, **settings: object) -> None:
        self.path = path
        self.server: EngineServer
        given = {"models": models, "device": "cpu", "threads": 1, **settings}
        self._settings = Settings.read(**given)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[LocalEngine]:
        """Serve workers, within `async with`."""
        metrics = Metrics()
        engine = LocalEngine(load(self._settings, metrics), metrics)
        going = True
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen()
        self.server = EngineServer(engine)
        serving = asyncio.ensure_future(self.server.serve(listener, lambda: going))
        try:
            yield engine
        finally:
            going = False
            await serving
            await engine.close()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[EngineClient]:
        """A worker that is connected, within `async with`."""
        worker = EngineClient(self.path, Metrics())
        async with asyncio.timeout(_PATIENCE):
            await worker.start()
        try:
            yield worker
        finally:
            await worker.close()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_bundle(folder, Spec(stages=(softmax_stage(), lag_stage()), calibrated=2))
    return folder


@pytest.fixture
def halves(models: Path, tmp_path: Path) -> Halves:
    return Halves(models, tmp_path / "engine", max_queue=64, max_inputs=64)


@on_loop
async def test_a_worker_runs_models_it_does_not_hold(halves: Halves) -> None:
    async with halves.engine() as engine, halves.worker() as worker:
        own, model = engine.registry.find(None), worker.registry.find("repeat@1")
        assert model.manifest == own.manifest
        assert (model.name, model.version) == ("repeat", "1")
        assert (model.provider, model.max_batch) == (own.provider, own.max_batch)
        assert model.failure is None
        history = np.arange(24, dtype=np.float32).reshape(3, 8, 1)
        for attention in ((), ("encoder.0.self.weights",)):
            sent = {"history": history}
            there = model.submit(sent, attention=attention, deadline=deadline())
            here = own.submit(sent, attention=attention, deadline=deadline())
            found, expected = await outcome(there), await outcome(here)
            # Of the attention, only what is wanted is sent.
            assert found.keys() - {"forecast", "margin"} == set(attention)
            assert {"forecast", "margin"} & expected.keys() <= found.keys()
            for name, array in found.items():
                assert array.dtype == expected[name].dtype
                np.testing.assert_array_equal(array, expected[name])
            assert there.submitted <= there.began < there.ended
            assert there.batch >= 3
        forecast = found["forecast"]
        of_both = [each.intervals.quantiles(history, forecast, [0.1, 0.9]) for each in (model, own)]
        np.testing.assert_array_equal(*of_both)


@on_loop
async def test_whatever_a_manifest_holds_is_told_once(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = Halves(models, tmp_path / "engine")
    told: list[str] = []

    def load_of(model: Model) -> tuple[ipc.Load, Arrays]:
        told.append(model.name)
        return _load(model)

    monkeypatch.setattr("foretell.service.engine.server._load", load_of)

    async with halves.engine() as engine, halves.worker() as worker:
        write_bundle(models, Spec(name="large", changes={"config": {"seed": 2**70}}))
        await engine.load("large", None)
        async with halves.worker() as later:
            assert later.registry.find("large").manifest.config == {"seed": 2**70}
        await until(lambda: "large" in {model.name for model in worker.registry.models})
        await engine.unload("repeat", None)
        await until(lambda: {model.name for model in worker.registry.models} == {"large"})
    # Each for both of the workers.
    assert sorted(told) == ["large", "repeat"]


@on_loop
async def test_a_new_worker_is_told_alone(halves: Halves) -> None:
    async with halves.engine(), halves.worker() as first:
        (served,) = first.registry.models
        registry = first.registry
        async with halves.worker() as later:
            assert later.registry.loaded(served.name) == ["1"]
            # Many looks at what has changed.
            await asyncio.sleep(0.5)
        assert first.registry is registry


def before_reads(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Sequence[np.ndarray]], object]
) -> None:
    """Call a function with the frames of updates, before they are read."""
    plain = _EngineConnection._read

    def read(connection: _EngineConnection, frames: Sequence[np.ndarray]) -> Registry:
        call(frames)
        return plain(connection, frames)

    monkeypatch.setattr(_EngineConnection, "_read", read)


@on_loop
async def test_updates_hold_what_has_changed_alone(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        write_bundle(models, Spec(name=f"other-{number}"))
    halves = Halves(models, tmp_path / "engine")
    sent: list[int] = []
    changed: set[str] = set()

    def note(frames: Sequence[np.ndarray]) -> None:
        for frame in frames:
            changes, manifests = ipc.decode(frame.data)
            assert isinstance(changes, ipc.Changes)
            sent.append(len(manifests))
            changed.update(name for name, *_ in (*changes.changed, *changes.removed))

    before_reads(monkeypatch, note)
    async with halves.engine() as engine, halves.worker() as one, halves.worker() as two:
        assert sent == [9, 9]
        sent.clear()
        changed.clear()
        before = two.registry
        write_bundle(models, Spec(name="new"))
        await one.load("new", None)
        await until(lambda: "new" in two.registry.defaults)
        # It may be sent as it is loading, too.
        assert sum(sent) == 2
        sent.clear()
        await two.unload("other-3", None)
        await until(lambda: one.registry.loaded("other-3") == [])
        assert sum(sent) == 0
        assert changed == {"new", "other-3"}
        expected = {"repeat", "new", *(f"other-{number}" for number in range(8))} - {"other-3"}
        for worker in (one, two):
            registry = await worker.updated()
            assert {model.name for model in registry.models} == expected
            assert [*registry.defaults] == [*engine.registry.defaults]
            assert worker.status.models == engine.repository.snapshot.report
        assert two.registry.versions["other-5"] is before.versions["other-5"]


@on_loop
async def test_a_worker_that_is_gone_while_it_is_told_keeps_nothing_from_others(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = Halves(models, tmp_path / "engine")
    telling, goes_on = threading.Event(), threading.Event()
    plain = EngineServer._updates

    def updates(server: EngineServer, *given: Any) -> Any:
        telling.set()
        goes_on.wait(_PATIENCE)
        return plain(server, *given)

    async with halves.engine(), halves.worker() as stays:
        leaving = EngineClient(halves.path, Metrics())
        await leaving.start()
        monkeypatch.setattr(EngineServer, "_updates", updates)
        write_bundle(models, Spec(name="new"))
        loading = asyncio.ensure_future(leaving.load("new", None))
        await until(telling.is_set)
        await leaving.close()
        await until(lambda: halves.server.workers == 1)
        goes_on.set()
        await until(lambda: "new" in {model.name for model in stays.registry.models})
        await asyncio.gather(loading, return_exceptions=True)


def test_a_worker_goes_on_while_it_reads_what_is_new(
    halves: Halves, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the engine this is every manifest of a repository."""
    reading, released = threading.Event(), threading.Event()

    def read(*given: Any) -> Intervals:
        reading.set()
        assert released.wait(_PATIENCE)
        return Intervals(*given)

    async def run() -> None:
        async with halves.engine() as engine, halves.worker() as worker:
            monkeypatch.setattr("foretell.service.engine.client.Intervals", read)
            write_bundle(models, Spec(version="2", horizon=6))
            loading = asyncio.ensure_future(worker.load("repeat", "2"))
            await until(reading.is_set)
            model = worker.registry.find(None)
            assert (model.version, engine.registry.find(None).version) == ("1", "2")
            run = model.submit(windows(), deadline=deadline())
            assert (await outcome(run))["forecast"].shape == (1, 4, 1)
            assert not loading.done()
            released.set()
            await loading
            assert worker.registry.find(None).version == "2"

    uvloop.run(run())


@on_loop
async def test_what_the_next_engine_serves_as_the_last_is_not_read_again(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(manifest: Manifest, *given: Any) -> Intervals:
        read.append(manifest.name)
        return Intervals(manifest, *given)

    monkeypatch.setattr("foretell.service.engine.client.Intervals", reading)
    write_bundle(models, Spec(name="zeta"))

    halves = Halves(models, tmp_path / "engine")
    async with contextlib.AsyncExitStack() as stack:
        async with halves.engine():
            worker = await stack.enter_async_context(halves.worker())
        assert sorted(read) == ["repeat", "zeta"]
        for name in ("alpha", "beta"):
            # The handles of the next one are others.
            write_bundle(models, Spec(name=name))
            await until(lambda: bool(worker.registry.unavailable))
            async with halves.engine():
                await until(lambda: worker.status.ready)
                assert read[2:] == ["alpha", "beta"][: len(read) - 2]
                for each in worker.registry.models:
                    assert (await outcome(each.submit(windows(), deadline=deadline()))).keys()
        assert len(read) == 4


@on_loop
async def test_a_worker_that_cannot_read_what_is_served_tries_again(
    halves: Halves, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[Manifest] = []

    def read(manifest: Manifest, *given: Any) -> Intervals:
        if len(failed) < 2:
            failed.append(manifest)
            raise MemoryError("for a moment")
        return Intervals(manifest, *given)

    monkeypatch.setattr("foretell.service.engine.client.Intervals", read)

    async with halves.engine(), halves.worker() as worker:
        assert worker.registry.loaded("repeat") == ["1"]
    assert caplog.text.count("what the engine serves could not be read") == 2


@on_loop
async def test_an_engine_goes_on_while_it_writes_what_is_new(
    halves: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, released = threading.Event(), threading.Event()

    def load_of(model: Model) -> tuple[ipc.Load, Arrays]:
        writing.set()
        assert released.wait(_PATIENCE)
        return _load(model)

    monkeypatch.setattr("foretell.service.engine.server._load", load_of)

    async with halves.engine():
        worker = EngineClient(halves.path, Metrics())
        starting = asyncio.ensure_future(worker.start())
        await until(writing.is_set)
        _, other = await asyncio.open_unix_connection(halves.path)
        await until(lambda: halves.server.workers == 2)
        released.set()
        await starting
        assert worker.registry.loaded("repeat") == ["1"]
        await worker.close()
        other.close()


def test_what_cannot_be_told_costs_no_door(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    halves = Halves(models, tmp_path / "engine")
    path = "foretell.service.engine.server._load"

    def fail(_: object) -> None:
        raise ValueError("a manifest that nobody can write")

    async def run() -> None:
        async with halves.engine() as engine, halves.worker() as worker:
            with monkeypatch.context() as patched:
                patched.setattr(path, fail)
                write_bundle(models, Spec(version="2"))
                await engine.load("repeat", "2")
                said = "what is served could not be sent to the HTTP workers"
                await until(lambda: said in caplog.text)
                late = EngineClient(halves.path, Metrics())
                starting = asyncio.ensure_future(late.start())
                # Once for what is new, and once for who is new.
                await until(lambda: caplog.text.count(said) == 2)
                await asyncio.sleep(0.5)
                assert caplog.text.count(said) == 2
                assert worker.registry.loaded("repeat") == ["1"]
            await engine.unload("repeat", "1")
            await starting
            await until(lambda: worker.registry.loaded("repeat") == ["2"])
            assert late.registry.loaded("repeat") == ["2"]
            run = worker.registry.find("repeat").submit(windows(), deadline=deadline())
            assert (await outcome(run))["forecast"].shape == (1, 4, 1)
            await late.close()

    uvloop.run(run())


@on_loop
async def test_windows_of_all_workers_fill_one_batch(models: Path, tmp_path: Path) -> None:
    write_bundle(models, Spec(name="slow", burn=300))
    halves = Halves(models, tmp_path / "engine", max_batch=64)
    async with halves.engine() as engine, halves.worker() as one, halves.worker() as two:
        first = one.registry.find("slow").submit(windows(), deadline=deadline())
        async with asyncio.timeout(_PATIENCE):
            while engine.repository.busy_seconds < 0:
                await asyncio.sleep(0.001)
        runs = [
            worker.registry.find("slow").submit(windows(), deadline=deadline())
            for _ in range(8)
            for worker in (one, two)
        ]
        for each in (first, *runs):
            await outcome(each)
        # They came while the first one ran.
        assert [each.batch for each in runs] == 16 * [16]


@on_loop
async def test_refusals_and_failures_are_told_as_they_are(halves: Halves, models: Path) -> None:
    write_bundle(models, Spec(name="fragile", fails=True))
    async with halves.engine(), halves.worker() as worker:
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
async def test_what_is_given_up_leaves_the_queue(models: Path, tmp_path: Path) -> None:
    write_bundle(models, Spec(name="slow", burn=40))
    halves = Halves(models, tmp_path / "engine", max_batch=1, max_queue=64, max_inputs=64)
    async with halves.engine() as engine, halves.worker() as worker, halves.worker() as other:

        def depth() -> int:
            [usage] = [own.usage for own in engine.repository.models if own.name == "slow"]
            return usage.windows

        model = worker.registry.find("slow")
        first = model.submit(windows(30), deadline=deadline())
        other.registry.find("slow").submit(windows(20), deadline=deadline())
        await until(lambda: depth() > 30)
        assert first.cancel()
        assert first.done()
        await until(lambda: depth() <= 20)
        # A worker that goes takes its work with it.
        await other.close()
        await until(lambda: depth() == 0)


@on_loop
async def test_models_come_and_go(halves: Halves, models: Path) -> None:
    async with halves.engine(), halves.worker() as one, halves.worker() as two:
        write_bundle(models, Spec(version="2", horizon=6))
        assert await one.index() == [
            IndexEntry("repeat", "1", State.READY),
            IndexEntry("repeat", "2", State.UNAVAILABLE, "not loaded"),
        ]
        await one.load("repeat", "2")
        # Every worker serves it once the call returns.
        for worker in (one, two):
            model = worker.registry.find(None)
            assert (model.version, model.manifest.horizon) == ("2", 6)
            found = await outcome(model.submit(windows(), deadline=deadline()))
            assert found["forecast"].shape == (1, 6, 1)
        before = two.registry.find("repeat@1")
        await two.unload("repeat", "1")
        for worker in (one, two):
            assert worker.registry.loaded("repeat") == ["2"]
        # Who had found it may use it for as long as a request takes.
        await outcome(before.submit(windows(), deadline=deadline()))
        with pytest.raises(UnknownModelError):
            await one.load("nope", None)
        (models / "repeat" / "2" / "weights.bin").write_bytes(b"")
        with pytest.raises(LoadFailedError, match=r"weights\.bin"):
            await one.load("repeat", "2")
        assert one.registry.find(None).version == "2"


@on_loop
async def test_a_worker_that_says_nothing_is_not_waited_for_for_long(
    halves: Halves, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.server._WRITE_SECONDS", 0.05)
    async with halves.engine(), halves.worker() as worker:
        _, silent = await asyncio.open_unix_connection(halves.path)
        await until(lambda: halves.server.workers == 2)
        write_bundle(models, Spec(version="2"))
        async with asyncio.timeout(_PATIENCE / 3):
            await worker.load("repeat", "2")
        assert halves.server.workers == 2
        silent.close()


@on_loop
async def test_who_is_ready(halves: Halves) -> None:
    async with halves.engine() as engine, halves.worker() as one, halves.worker():
        assert one.status.ready
        assert one.status.models == {"repeat@1": "ready"}
        one.drain()
        assert not one.status.ready
        assert one.status.models == {"repeat@1": "draining"}
        with pytest.raises(NotReadyError):
            await one.load("repeat", "1")
        # Only this worker is stopping.
        assert engine.status.ready


@on_loop
async def test_workers_count_for_all(halves: Halves) -> None:
    async def contains(worker: EngineClient, line: str) -> bool:
        return line in (await worker.render()).decode().splitlines()

    async def until_async(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not await condition():
                await asyncio.sleep(0.05)

    async with halves.engine(), halves.worker() as one, halves.worker() as two:
        for worker, times in ((one, 1), (two, 2)):
            for _ in range(times):
                worker.metrics.in_flight += 1
                worker.metrics.answered("/forecast", 200, 0.01)
        two.metrics.in_flight += 1
        line = 'foretell_requests_total{model="",route="/forecast",status="200",version=""} 3.0'
        # The own ones at once, those of other workers within a moment.
        await until_async(lambda: contains(one, line))
        await until_async(lambda: contains(one, "foretell_requests_in_flight 1.0"))
        await two.close()
        # A worker that is gone answers nothing any more; what it has answered counts.
        await until_async(lambda: contains(one, "foretell_requests_in_flight 0.0"))
        assert await contains(one, line)
        one.metrics.answered("/forecast", 200, 0.5, ("repeat", "1"), [("decode", 0.5)])
        for key in (("repeat", None), ("repeat", "1"), (None, None)):
            told = StatisticsReport.model_validate_json(await one.statistics(*key))
            (found,) = (each for each in told.model_stats if each.name == "repeat")
            assert found.inference_stats.success.count == 1
            assert found.inference_stats.compute_input.ns == 500_000_000


def test_an_engine_that_is_lost_and_comes_back(models: Path, tmp_path: Path) -> None:
    write_bundle(models, Spec(name="slow", burn=40))

    async def run() -> None:
        halves = Halves(models, tmp_path / "engine", max_batch=1)
        async with contextlib.AsyncExitStack() as stack:
            async with halves.engine():
                worker = await stack.enter_async_context(halves.worker())
                model = worker.registry.find("slow")
                runs = [model.submit(windows(20), deadline=deadline()) for _ in range(3)]
                # As if it were killed.
                for each in [*halves.server._workers]:
                    each.transport.abort()
                await until(lambda: not worker.status.ready)
                halves.path.unlink()
            # It has gone.
            for run in runs:
                with pytest.raises((EngineLostError, NotReadyError)) as lost:
                    await outcome(run)
                assert getattr(lost.value, "retry_after", 1) == 1
            await until(lambda: not worker.status.ready)
            assert set(worker.status.models) == {"repeat@1", "slow@1"}
            with pytest.raises(EngineLostError) as refused:
                model.submit(windows(), deadline=deadline())
            assert refused.value.retry_after == 1
            with pytest.raises(EngineLostError):
                worker.registry.find("slow")
            with pytest.raises(EngineLostError):
                await worker.load("slow", "1")
            # What is counted meanwhile is told later.
            worker.metrics.rejected("engine_lost")
            async with halves.engine() as engine:
                await until(lambda: worker.status.ready)
                found = await outcome(
                    worker.registry.find("slow").submit(windows(), deadline=deadline())
                )
                assert found["forecast"].shape == (1, 4, 1)
                await worker.render()
                count = engine.metrics.counts.count
                await until(lambda: count("foretell_rejected_total", "engine_lost") == 1)
                # Rates are of counters that were 0 once, with every engine.
                assert b'foretell_rejected_total{reason="queue_full"} 0.0' in await worker.render()

    uvloop.run(run())


@on_loop
async def test_a_worker_that_comes_back_at_once_is_told_what_is_served(halves: Halves) -> None:
    async with halves.engine(), halves.worker() as worker:
        connection = worker._connection
        assert connection is not None
        connection.transport.abort()
        # Nothing has changed meanwhile.
        await until(lambda: worker._connection not in (None, connection))
        assert worker.status.ready
        await outcome(worker.registry.find(None).submit(windows(), deadline=deadline()))


@on_loop
async def test_a_model_of_an_engine_that_is_gone_is_none_of_the_next(
    models: Path, tmp_path: Path
) -> None:
    write_bundle(models, Spec(name="zeta"))
    halves = Halves(models, tmp_path / "engine")
    async with contextlib.AsyncExitStack() as stack:
        async with halves.engine():
            worker = await stack.enter_async_context(halves.worker())
            before = worker.registry.find("zeta")
        # The handles of the next one are others.
        write_bundle(models, Spec(name="alpha"))
        async with halves.engine():
            await until(lambda: worker.status.ready)
            with pytest.raises(EngineLostError):
                before.submit(windows(), deadline=deadline())


@on_loop
async def test_requests_in_flight_are_those_of_the_workers_there_are(halves: Halves) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with halves.engine():
            worker = await stack.enter_async_context(halves.worker())
            for _ in range(3):
                worker.metrics.in_flight += 1
            assert b"foretell_requests_in_flight 3.0" in await worker.render()
        async with halves.engine():
            await until(lambda: worker.status.ready)
            for _ in range(2):
                worker.metrics.answered("/forecast", 503, 0.1)
            assert b"foretell_requests_in_flight 1.0" in await worker.render()


@on_loop
async def test_a_worker_that_is_stopping_still_tells_what_is_counted(halves: Halves) -> None:
    async with halves.engine() as engine, halves.worker() as worker:
        gate = threading.Event()
        engine.repository.load = lambda *_: gate.wait(_PATIENCE)  # type: ignore[method-assign]
        loading = asyncio.ensure_future(worker.load("repeat", "1"))
        await asyncio.sleep(0.05)
        worker.drain()
        with pytest.raises(NotReadyError):
            await loading
        assert b"foretell_ready 1.0" in await worker.render()
        assert len(await worker.index()) == 1
        gate.set()


@on_loop
async def test_a_call_that_fails_for_any_reason_is_answered(
    halves: Halves, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("Stale file handle")

    async with halves.engine() as engine, halves.worker() as worker:
        engine.repository.index = fail  # type: ignore[assignment,method-assign]
        with pytest.raises(ServiceError, match="the server failed; its log says why") as told:
            async with asyncio.timeout(_PATIENCE):
                await worker.index()
        assert told.value.status == 500
    assert "Stale file handle" in caplog.text


@on_loop
async def test_a_worker_gets_the_window_that_a_bundle_carries(models: Path, tmp_path: Path) -> None:
    write_bundle(models, Spec("window", channels=("load", "wind"), targets=("wind",), example=9))
    halves = Halves(models, tmp_path / "engine")
    async with contextlib.AsyncExitStack() as stack:
        async with halves.engine() as engine:
            worker = await stack.enter_async_context(halves.worker())
            model = worker.registry.find("window")
            own = engine.registry.find("window")
            found, expected = await model.example(), await own.example()
            assert found is not None
            assert expected is not None
            for name in ("history", "timestamps", "actual"):
                one, other = getattr(found, name), getattr(expected, name)
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            assert found.series == expected.series == "a house"
            assert await worker.registry.find("repeat").example() is None
            halves.server._models.clear()
            with pytest.raises(NotReadyError, match="unloaded"):
                await model.example()
        await until(lambda: bool(worker.registry.unavailable))
        async with halves.engine():
            await until(lambda: not worker.registry.unavailable)
            assert await worker.registry.find("window").example() is not None
            # Another model may have its handle now.
            with pytest.raises(EngineLostError):
                await model.example()


@on_loop
async def test_an_engine_that_ends_answers_what_it_runs(halves: Halves) -> None:
    begun, released = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        begun.set()
        assert released.wait(_PATIENCE)

    async def release() -> None:
        await until(lambda: halves.server.closing)
        released.set()

    async with contextlib.AsyncExitStack() as stack:
        async with halves.engine() as engine:
            worker = await stack.enter_async_context(halves.worker())
            scheduler = engine.repository._scheduler
            assert scheduler is not None
            scheduler.on_threads(hold)
            assert begun.wait(_PATIENCE)
            going = worker.registry.find(None).submit(windows(4), deadline=deadline())
            await until(lambda: any(each.runs for each in halves.server._workers))
            # No earlier than the engine has been told to end.
            releasing = asyncio.create_task(release())
        await releasing
        assert (await outcome(going))["forecast"].shape == (4, 4, 1)


@on_loop
async def test_what_was_loaded_for_one_worker_is_known_to_all(halves: Halves, models: Path) -> None:
    async with halves.engine(), halves.worker() as one, halves.worker() as two:
        for version in range(2, 8):
            write_bundle(models, Spec(version=str(version)))
            loaded, other = (one, two) if version % 2 else (two, one)
            await loaded.load("repeat", str(version))
            # At once, of the name as of the version.
            for reference in (None, "repeat", f"repeat@{version}"):
                model = await other.find(partial(Registry.find, reference=reference))
                assert model.version == str(version)
            await loaded.unload("repeat", str(version - 1))
            model = await other.find(partial(Registry.find, reference=None))
            assert model.version == str(version)
            assert other.registry.loaded("repeat") == [str(version)]


@on_loop
async def test_the_engine_is_asked_for_what_a_worker_does_not_know(
    halves: Halves, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is published but on request.
    monkeypatch.setattr(EngineServer, "_engine_changed", False)

    calls: list[str] = []
    plain = EngineServer.call

    async def call(server: EngineServer, method: str, arguments: Any) -> Any:
        calls.append(method)
        return await plain(server, method, arguments)

    monkeypatch.setattr(EngineServer, "call", call)

    async with halves.engine() as engine, halves.worker() as worker:
        write_bundle(models, Spec(version="2"))
        # Not by way of a worker: it would be published later.
        await engine.load("repeat", "2")
        model = await worker.find(partial(Registry.find, reference="repeat@2"))
        assert model.version == "2"
        asked = len(calls)
        for reference, error in (("nope", UnknownModelError), ("repeat@9", ServiceError)):
            with pytest.raises(error):
                await worker.find(partial(Registry.find, reference=reference))
        assert calls[asked:] == ["refresh"] * 2
        await worker.find(partial(Registry.find, reference="repeat@1"))
        assert len(calls) == asked + 2


@on_loop
async def test_an_engine_that_is_stuck_is_asked_but_for_a_moment(
    halves: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.client._REFRESH_SECONDS", 0.05)

    async def stuck(*_: object) -> None:
        await asyncio.sleep(_PATIENCE)

    async with halves.engine(), halves.worker() as worker:
        monkeypatch.setattr(EngineServer, "call", stuck)
        async with asyncio.timeout(_PATIENCE / 3):
            with pytest.raises(UnknownModelError):
                await worker.find(partial(Registry.find, reference="nope"))


@on_loop
async def test_many_requests_for_unknown_models_cost_few_calls_and_publishes(
    halves: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed, published, tasks = [], [], []
    call, updates = EngineServer.call, EngineServer._updates

    async def counted(server: EngineServer, method: str, arguments: Any) -> Any:
        refreshed.append(method)
        tasks.append(len(server._tasks))
        return await call(server, method, arguments)

    def slow(server: EngineServer, *given: Any) -> Any:
        published.append(given)
        time.sleep(0.05)
        return updates(server, *given)

    async with halves.engine() as engine, halves.worker() as worker:
        monkeypatch.setattr(EngineServer, "call", counted)
        monkeypatch.setattr(EngineServer, "_updates", slow)
        end = time.monotonic() + 1

        async def ask() -> None:
            while time.monotonic() < end:
                with pytest.raises(UnknownModelError):
                    await worker.find(partial(Registry.find, reference="nope"))

        asked = [asyncio.ensure_future(ask()) for _ in range(40)]
        await asyncio.sleep(0.1)
        published.clear()
        engine.metrics.changed()
        await asyncio.sleep(0.3)
        refreshed.clear()
        unknown = partial(Registry.find, reference="nope")
        await asyncio.gather(*(worker.find(unknown) for _ in range(100)), return_exceptions=True)
        # The one that went on and the next one, and those of `asked` meanwhile.
        assert len(refreshed) < 20
        await asyncio.gather(*asked)
        # One change.
        assert len(published) == 1
        assert max(tasks) <= 2


@on_loop
async def test_a_model_that_does_not_change_is_found_while_an_update_is_read(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(models, Spec(name="other"))
    halves = Halves(models, tmp_path / "engine")
    read, released = [], threading.Event()

    def wait(frames: Sequence[np.ndarray]) -> None:
        read.append(len(frames))
        assert released.wait(_PATIENCE)

    async with halves.engine() as engine, halves.worker() as worker:
        before_reads(monkeypatch, wait)
        write_bundle(models, Spec(version="2"))
        await engine.load("repeat", "2")
        await until(lambda: bool(read))
        connection = worker._connection
        assert connection is not None
        for version in ("3", "4", "5"):
            write_bundle(models, Spec(version=version))
            await engine.load("repeat", version)
            await halves.server._publish_now()
        await until(lambda: len(connection._changes) >= 3)
        begun = time.monotonic()
        model = await worker.find(partial(Registry.find, reference="other"), deadline())
        assert model.name == "other"
        assert time.monotonic() - begun < 0.5
        # What has changed waits, but no longer than a request may take.
        for reference in ("repeat", "nope"):
            begun, lookup = time.monotonic(), partial(Registry.find, reference=reference)
            with pytest.raises(DeadlineExceededError):
                await worker.find(lookup, time.monotonic() + 0.1)
            assert time.monotonic() - begun < 0.5
        found = asyncio.ensure_future(
            worker.find(partial(Registry.find, reference="repeat"), deadline())
        )
        await asyncio.sleep(0)
        released.set()
        assert (await found).version == "5"
        # Those that came meanwhile were read together.
        assert len(read) == 2


@on_loop
async def test_the_status_and_the_registry_are_those_after_an_answered_load(
    halves: Halves, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with halves.engine(), halves.worker() as one, halves.worker() as two:
        before_reads(monkeypatch, lambda _: time.sleep(0.05))
        for version in ("2", "3"):
            write_bundle(models, Spec(version=version))
            await one.load("repeat", version)
            registry = await two.updated()
            assert version in registry.loaded("repeat")
            assert two.status.models[f"repeat@{version}"] == "ready"


@on_loop
async def test_a_result_that_cannot_be_sent_keeps_none_from_others(
    halves: Halves, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with halves.engine(), halves.worker() as worker:
        model, (connection,) = worker.registry.find(None), halves.server._workers
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
