"""An HTTP worker's client of an engine in another process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.client import EngineClient
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.registry import IndexEntry, Model, Registry, State
from foretell.service.engine.server import EngineServer, _load
from foretell.service.engine.statistics import StatisticsReport
from foretell.service.errors import (
    DeadlineExceededError,
    EngineLostError,
    LoadFailedError,
    NotReadyError,
    ServiceError,
    UnknownModelError,
)
from tests.service.engine.conftest import (
    PATIENCE,
    System,
    ask,
    before_reads,
    deadline,
    outcome,
    until_async,
    windows,
)
from tests.service.loops import on_loop
from tests.support.bundles import Spec, write_bundle


@on_loop
async def test_client_runs_models_of_the_engine(system: System) -> None:
    async with system.engine() as engine, system.worker() as worker:
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
            # Only the requested attention is sent.
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
async def test_updates_have_only_changed_models(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        write_bundle(models, Spec(name=f"other-{number}"))
    system = System(models, tmp_path / "engine")
    sent: list[int] = []
    changed: set[str] = set()

    def note(frames: Sequence[np.ndarray]) -> None:
        for frame in frames:
            changes, manifests = ipc.decode(frame.data)
            assert isinstance(changes, ipc.Changes)
            sent.append(len(manifests))
            changed.update(name for name, *_ in (*changes.changed, *changes.removed))

    def load_of(model: Model) -> tuple[ipc.Load, Arrays]:
        written.append(model.name)
        return _load(model)

    written: list[str] = []
    monkeypatch.setattr("foretell.service.engine.server._load", load_of)
    before_reads(monkeypatch, note)
    async with system.engine() as engine, system.worker() as one, system.worker() as two:
        assert sent == [9, 9]
        sent.clear()
        changed.clear()
        before = two.registry
        write_bundle(models, Spec(name="new", changes={"config": {"seed": 2**70}}))
        await one.load("new", None)
        await until_async(lambda: "new" in two.registry.defaults)
        # It may be sent as it is loading, too.
        assert sum(sent) == 2
        sent.clear()
        await two.unload("other-3", None)
        await until_async(lambda: one.registry.loaded("other-3") == [])
        assert sum(sent) == 0
        assert changed == {"new", "other-3"}
        expected = {"repeat", "new", *(f"other-{number}" for number in range(8))} - {"other-3"}
        for worker in (one, two):
            registry = await worker.updated()
            assert {model.name for model in registry.models} == expected
            assert [*registry.defaults] == [*engine.registry.defaults]
            assert worker.status.models == engine.repository.snapshot.report
            assert worker.registry.find("new").manifest.config == {"seed": 2**70}
        # Each is written once for both of the workers.
        assert sorted(written) == sorted({*expected, "other-3"})
        assert two.registry.versions["other-5"] is before.versions["other-5"]


@on_loop
async def test_client_reads_only_changed_models_of_the_next_engine(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(manifest: Manifest, *given: Any) -> Intervals:
        read.append(manifest.name)
        return Intervals(manifest, *given)

    monkeypatch.setattr("foretell.service.engine.remote.Intervals", reading)
    write_bundle(models, Spec(name="zeta"))

    system = System(models, tmp_path / "engine")
    async with contextlib.AsyncExitStack() as stack:
        async with system.engine():
            worker = await stack.enter_async_context(system.worker())
            before = worker.registry.find("zeta")
        assert sorted(read) == ["repeat", "zeta"]
        for name in ("alpha", "beta"):
            # The next engine assigns other handles.
            write_bundle(models, Spec(name=name))
            await until_async(lambda: bool(worker.registry.unavailable))
            async with system.engine():
                await until_async(lambda: worker.status.ready)
                with pytest.raises(EngineLostError):
                    before.submit(windows(), deadline=deadline())
                assert read[2:] == ["alpha", "beta"][: len(read) - 2]
                for each in worker.registry.models:
                    await ask(worker, each.name)
        assert len(read) == 4


@on_loop
async def test_client_reconnects_after_an_unreadable_update(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[Manifest] = []

    def read(manifest: Manifest, *given: Any) -> Intervals:
        if len(failed) < 2:
            failed.append(manifest)
            raise MemoryError("for a moment")
        return Intervals(manifest, *given)

    monkeypatch.setattr("foretell.service.engine.remote.Intervals", read)

    async with system.engine(), system.worker() as worker:
        assert worker.registry.loaded("repeat") == ["1"]
    assert caplog.text.count("what the engine serves could not be read") == 2


@on_loop
async def test_client_serves_unchanged_models_during_an_update(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(models, Spec(name="other"))
    system = System(models, tmp_path / "engine")
    read, released = [], threading.Event()

    def wait(frames: Sequence[np.ndarray]) -> None:
        read.append(len(frames))
        assert released.wait(PATIENCE)

    async with system.engine() as engine, system.worker() as worker:
        before_reads(monkeypatch, wait)
        write_bundle(models, Spec(version="2"))
        await engine.load("repeat", "2")
        await until_async(lambda: bool(read))
        connection = worker._connection
        assert connection is not None
        for version in ("3", "4", "5"):
            write_bundle(models, Spec(version=version))
            await engine.load("repeat", version)
            await system.server._publish_now()
        await until_async(lambda: len(connection._changes) >= 3)
        begun = time.monotonic()
        model = await worker.find(partial(Registry.find, reference="other"), deadline())
        assert model.name == "other"
        assert time.monotonic() - begun < 0.5
        # Changes wait, but no longer than a request may take.
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
        # Updates that came meanwhile were read together.
        assert len(read) == 2


@on_loop
async def test_loads_and_unloads_reach_all_clients(
    system: System, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with system.engine(), system.worker() as one, system.worker() as two:
        before_reads(monkeypatch, lambda _: time.sleep(0.05))
        write_bundle(models, Spec(version="2", horizon=6))
        assert await one.index() == [
            IndexEntry("repeat", "1", State.READY),
            IndexEntry("repeat", "2", State.UNAVAILABLE, "not loaded"),
        ]
        await one.load("repeat", "2")
        # Every worker serves it once the call returns, however slowly it reads the update.
        for worker in (one, two):
            model = (await worker.updated()).find(None)
            assert worker.status.models["repeat@2"] == "ready"
            assert (model.version, model.manifest.horizon) == ("2", 6)
            found = await outcome(model.submit(windows(), deadline=deadline()))
            assert found["forecast"].shape == (1, 6, 1)
        before = two.registry.find("repeat@1")
        await two.unload("repeat", "1")
        for worker in (one, two):
            assert (await worker.updated()).loaded("repeat") == ["2"]
        # A request that found the version earlier may still use it.
        await outcome(before.submit(windows(), deadline=deadline()))
        with pytest.raises(UnknownModelError):
            await one.load("nope", None)
        (models / "repeat" / "2" / "weights.bin").write_bytes(b"")
        with pytest.raises(LoadFailedError, match=r"weights\.bin"):
            await one.load("repeat", "2")
        assert one.registry.find(None).version == "2"


@on_loop
async def test_client_requests_unknown_models_from_the_engine(
    system: System, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is published but on request.
    monkeypatch.setattr(EngineServer, "_engine_changed", False)

    calls: list[str] = []
    plain = EngineServer.call

    async def call(server: EngineServer, method: str, *given: Any) -> Any:
        calls.append(method)
        return await plain(server, method, *given)

    monkeypatch.setattr(EngineServer, "call", call)

    async with system.engine() as engine, system.worker() as worker:
        write_bundle(models, Spec(version="2"))
        # Called on the engine: the worker has not got the update yet.
        await engine.load("repeat", "2")
        model = await worker.find(partial(Registry.find, reference="repeat@2"))
        assert model.version == "2"
        count = len(calls)
        for reference, error in (("nope", UnknownModelError), ("repeat@9", ServiceError)):
            with pytest.raises(error):
                await worker.find(partial(Registry.find, reference=reference))
        assert calls[count:] == ["refresh"] * 2
        await worker.find(partial(Registry.find, reference="repeat@1"))
        assert len(calls) == count + 2


@on_loop
async def test_client_waits_briefly_for_a_stuck_engine(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.client._REFRESH_SECONDS", 0.05)

    async def stuck(*_: object) -> None:
        await asyncio.sleep(PATIENCE)

    async with system.engine(), system.worker() as worker:
        monkeypatch.setattr(EngineServer, "call", stuck)
        async with asyncio.timeout(PATIENCE / 3):
            with pytest.raises(UnknownModelError):
                await worker.find(partial(Registry.find, reference="nope"))


@on_loop
async def test_client_outlives_its_engine(models: Path, tmp_path: Path) -> None:
    write_bundle(models, Spec(name="slow", burn=40))
    system = System(models, tmp_path / "engine", max_batch=1)
    async with contextlib.AsyncExitStack() as stack:
        async with system.engine():
            worker = await stack.enter_async_context(system.worker())
            model = worker.registry.find("slow")
            runs = [model.submit(windows(20), deadline=deadline()) for _ in range(3)]
            # As if it were killed.
            for each in [*system.server._workers]:
                each.transport.abort()
            await until_async(lambda: not worker.status.ready)
            system.path.unlink()
        # The engine has ended.
        for run in runs:
            with pytest.raises((EngineLostError, NotReadyError)) as lost:
                await outcome(run)
            assert getattr(lost.value, "retry_after", 1) == 1
        await until_async(lambda: not worker.status.ready)
        assert set(worker.status.models) == {"repeat@1", "slow@1"}
        with pytest.raises(EngineLostError) as refused:
            model.submit(windows(), deadline=deadline())
        assert refused.value.retry_after == 1
        with pytest.raises(EngineLostError):
            worker.registry.find("slow")
        with pytest.raises(EngineLostError):
            await worker.load("slow", "1")
        # Counts made meanwhile are sent later.
        worker.metrics.rejected("engine_lost")
        async with system.engine() as engine:
            await until_async(lambda: worker.status.ready)
            assert (await ask(worker, "slow"))["forecast"].shape == (1, 4, 1)
            await worker.render()
            count = engine.metrics.counts.count
            await until_async(lambda: count("foretell_rejected_total", "engine_lost") == 1)
            # Rates need counters that begin at 0, with every engine.
            assert b'foretell_rejected_total{reason="queue_full"} 0.0' in await worker.render()


@on_loop
async def test_reconnected_client_knows_the_served_models(system: System) -> None:
    async with system.engine(), system.worker() as worker:
        connection = worker._connection
        assert connection is not None
        connection.transport.abort()
        # Without changes the worker connects again, and serves the same models.
        await until_async(lambda: worker._connection not in (None, connection))
        assert worker.status.ready
        await ask(worker)


@on_loop
async def test_draining_worker_is_unready_and_still_serves_metrics_and_index(
    system: System,
) -> None:
    gate = threading.Event()
    async with system.engine() as engine, system.worker() as one, system.worker():
        assert one.status.ready
        assert one.status.models == {"repeat@1": "ready"}
        engine.repository.load = lambda *_: gate.wait(PATIENCE)  # type: ignore[method-assign]
        loading = asyncio.ensure_future(one.load("repeat", "1"))
        await asyncio.sleep(0.05)
        one.drain()
        assert not one.status.ready
        assert one.status.models == {"repeat@1": "draining"}
        for refused in (loading, one.load("repeat", "1")):
            with pytest.raises(NotReadyError):
                await refused
        # Only this worker is stopping.
        assert engine.status.ready
        assert b"foretell_ready 1.0" in await one.render()
        assert len(await one.index()) == 1
        gate.set()


@on_loop
async def test_metrics_add_up_all_workers(system: System) -> None:
    async def contains(worker: EngineClient, line: str) -> bool:
        return line in (await worker.render()).decode().splitlines()

    async def until_awaited(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await asyncio.sleep(0.05)

    async with system.engine(), system.worker() as one, system.worker() as two:
        for worker, times in ((one, 1), (two, 2)):
            for _ in range(times):
                worker.metrics.in_flight += 1
                worker.metrics.answered("/forecast", 200, 0.01)
        two.metrics.in_flight += 1
        line = 'foretell_requests_total{model="",route="/forecast",status="200",version=""} 3.0'
        # A worker's own counts appear at once, those of other workers soon.
        await until_awaited(lambda: contains(one, line))
        await until_awaited(lambda: contains(one, "foretell_requests_in_flight 1.0"))
        await two.close()
        # A closed worker has no requests in flight, but its answers still count.
        await until_awaited(lambda: contains(one, "foretell_requests_in_flight 0.0"))
        assert await contains(one, line)
        one.metrics.answered("/forecast", 200, 0.5, ("repeat", "1"), [("decode", 0.5)])
        for key in (("repeat", None), ("repeat", "1"), (None, None)):
            report = StatisticsReport.model_validate_json(await one.statistics(*key))
            (found,) = (each for each in report.model_stats if each.name == "repeat")
            assert found.inference_stats.success.count == 1
            assert found.inference_stats.compute_input.ns == 500_000_000


@on_loop
async def test_next_engine_recounts_requests_in_flight(system: System) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with system.engine():
            worker = await stack.enter_async_context(system.worker())
            for _ in range(3):
                worker.metrics.in_flight += 1
            assert b"foretell_requests_in_flight 3.0" in await worker.render()
        async with system.engine():
            await until_async(lambda: worker.status.ready)
            for _ in range(2):
                worker.metrics.answered("/forecast", 503, 0.1)
            assert b"foretell_requests_in_flight 1.0" in await worker.render()


@on_loop
async def test_client_reads_the_example_of_a_bundle(models: Path, tmp_path: Path) -> None:
    covariates = Covariates(future=(Covariate(name="price"),), static=(Covariate(name="size"),))
    names = ("load", "wind")
    spec = Spec("window", channels=names, targets=names[1:], covariates=covariates, example=9)
    write_bundle(models, spec)
    system = System(models, tmp_path / "engine")
    async with contextlib.AsyncExitStack() as stack:
        async with system.engine() as engine:
            worker = await stack.enter_async_context(system.worker())
            model = worker.registry.find("window")
            own = engine.registry.find("window")
            found, expected = await model.example(), await own.example()
            assert found is not None
            assert expected is not None
            for name in vars(expected).keys() - {"series"}:
                one, other = getattr(found, name), getattr(expected, name)
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            assert found.series == expected.series == "a house"
            assert await worker.registry.find("repeat").example() is None
            system.server._models.clear()
            with pytest.raises(NotReadyError, match="unloaded"):
                await model.example()
        await until_async(lambda: bool(worker.registry.unavailable))
        async with system.engine():
            await until_async(lambda: not worker.registry.unavailable)
            assert await worker.registry.find("window").example() is not None
            # Another model may have its handle now.
            with pytest.raises(EngineLostError):
                await model.example()
