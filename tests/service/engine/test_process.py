"""The engine: its process, and the calls that change what it serves."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int64
from itertools import pairwise
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
import uvloop

from foretell.bundle.errors import BundleError
from foretell.service.arrays import HISTORY
from foretell.service.engine.client import EngineClient
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.health import HealthMonitor, end
from foretell.service.engine.loading import load
from foretell.service.engine.repository import Repository
from foretell.service.engine_process import run_engine
from foretell.service.errors import NotReadyError, StartError
from foretell.service.metrics import Metrics, Processes
from foretell.service.settings import Settings
from tests.service.client import Client, connect
from tests.service.served import Scene
from tests.support.bundles import Spec, write_bundle
from tests.support.waiting import until

PATIENCE = 30


class FakeRepository:
    """A repository as far as it is watched."""

    def __init__(self) -> None:
        self.lost: dict[int, str] = {}
        self.dead = False
        self.busy_seconds = 0.0


def watch(repository: FakeRepository) -> HealthMonitor:
    return HealthMonitor(cast("Repository", repository), grace_seconds=30, stuck_seconds=300)


@pytest.mark.parametrize(("others", "seconds"), [(True, 30), (False, 0)])
def test_health_monitor_ends_the_engine_after_a_lost_gpu(
    caplog: pytest.LogCaptureFixture, others: bool, seconds: int
) -> None:
    repository = FakeRepository()
    watched = watch(repository)
    assert not watched.is_over(100.0)
    repository.lost, repository.dead = {0: "GPU 0 is lost"}, not others
    # While other GPUs answer, load balancers have time to see that the server is not ready.
    for now in (101.0, 100.9 + seconds):
        assert watched.is_over(now) == (not others)
    assert watched.is_over(101.0 + seconds)
    assert caplog.messages == [
        f"the process ends in {seconds} s with status 75, and must be replaced"
    ]


def test_health_monitor_reports_stuck_threads() -> None:
    repository = FakeRepository()
    watched = watch(repository)
    repository.busy_seconds = 299.0
    assert not watched.stuck
    repository.busy_seconds = 301.0
    assert watched.stuck


def test_missing_models_of_keep_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_bundle(tmp_path, Spec())
    keep = ("repeat", "repeat@1", "repeat@2", "repaet")
    settings = Settings(models=tmp_path, device="cpu", load="on-demand", max_loaded=1, keep=keep)
    load(settings, Metrics()).close(5)
    assert [each for each in caplog.messages if "KEEP" in each] == [
        f"FORETELL_KEEP: {name} is not in the repository" for name in ("repeat@2", "repaet")
    ]


def test_failed_start_leaves_no_threads(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    # Folders without bundles; `foretell predict --bundle` continues after this error.
    for settings in (
        Settings(models=tmp_path, device="cpu"),
        Settings(models=tmp_path / "none", device="cpu", load="on-demand"),
        Settings(models="az://container/prefix", device="cpu"),
    ):
        with pytest.raises(StartError):
            load(settings, Metrics())
        assert not {*threading.enumerate()} - before


class GoneError(Exception):
    """This process has ended."""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing does not wait for threads, and the end of the process raises `GoneError`."""
    for pause in (
        "repository._SCHEDULER_SECONDS",
        "repository._JOIN_SECONDS",
        "model._STOP_SECONDS",
    ):
        monkeypatch.setattr(f"foretell.service.engine.{pause}", 0.0)
    monkeypatch.setattr(os, "_exit", Mock(side_effect=GoneError))
    monkeypatch.setattr(logging, "shutdown", Mock())


def check_end(repository: Repository, release: Callable[[], None]) -> None:
    """Closing ends the process at once while work is held, and not after it is released."""
    engine = LocalEngine(repository, Metrics())
    try:
        with pytest.raises(GoneError):
            end(engine, 3)
    finally:
        release()
    until(lambda: not repository.going)
    end(engine, 3)


@pytest.mark.usefixtures("hurried")
def test_end_does_not_wait_for_loads_of_the_watcher(tmp_path: Path) -> None:
    scene = Scene(tmp_path, watch_seconds=0.0)
    scene.place("one@1")
    scene.repository.start()
    scene.open.gate.clear()
    scene.place("one@2")
    until(lambda: "one@2" in scene.open.opened)
    scene.repository.close(0)
    check_end(scene.repository, scene.open.gate.set)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("what", ["a run", "a load on demand", "a graph of attention"])
def test_end_does_not_wait_for_runs_and_loads(tmp_path: Path, what: str) -> None:
    write_bundle(tmp_path, Spec())
    going, over = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        going.set()
        over.wait(PATIENCE)
        raise BundleError("too late")

    choice = "on-demand" if what == "a load on demand" else "start"
    repository = load(Settings(models=tmp_path, device="cpu", load=choice), Metrics())
    (model,) = repository.registry.models
    if what == "a run":
        repository._scheduler.on_threads(hold)
    elif what == "a load on demand":
        model.open = hold
        feeds = {HISTORY: np.zeros((1, 4, 1), np.float32)}
        model.submit(feeds, deadline=time.monotonic() + PATIENCE)
    else:
        model._graphs.open = hold
        model._ask_for_attention()
    assert going.wait(PATIENCE)
    repository.close(0)
    until(lambda: not repository._watcher.is_alive())
    check_end(repository, over.set)


def run_here(folder: Path, monkeypatch: pytest.MonkeyPatch, heartbeat: Callable[[], None]) -> None:
    """Run an engine of a folder's `models` in this process until it gets a signal."""
    # Paths of sockets are short.
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("engine")
        listener.listen()
        settings = Settings(models=Path("models"), device="cpu", threads=1)
        run_engine(settings, listener, Processes(("worker",), 1, RawArray(c_int64, 2)), heartbeat)


@pytest.mark.parametrize("installed", [True, False])
def test_engine_runs_uvloop_if_installed_and_stops_at_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    write_bundle(tmp_path / "models", Spec())
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loops: list[asyncio.AbstractEventLoop] = []

    def heartbeat() -> None:
        loops.append(asyncio.get_running_loop())
        os.kill(os.getpid(), signal.SIGTERM)

    run_here(tmp_path, monkeypatch, heartbeat)
    assert [isinstance(loop, uvloop.Loop) for loop in loops] == [installed]


class Trimmer:
    """Records for each call whether requests were being answered."""

    def __init__(self) -> None:
        self.busy: list[bool] = []

    def trim(self, now: float, *, busy: bool) -> None:
        self.busy.append(busy)


def test_engine_passes_the_trimmer_whether_it_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "models", Spec(burn=300))
    trimmer, deadline = Trimmer(), time.monotonic() + PATIENCE
    monkeypatch.setattr("foretell.service.engine_process.MallocTrimmer", lambda: trimmer)
    monkeypatch.setattr("foretell.service.engine_process._HEARTBEAT_SECONDS", 0.0)

    def heartbeat() -> None:
        if trimmer.busy[-2:] == [True, False] or time.monotonic() > deadline:
            os.kill(os.getpid(), signal.SIGTERM)

    async def ask() -> None:
        worker = EngineClient(tmp_path / "engine", Metrics())
        await worker.start()
        feeds = {HISTORY: np.zeros((1, 8, 1), np.float32)}
        while True not in trimmer.busy and time.monotonic() < deadline:
            run = worker.registry.find(None).submit(feeds, deadline=deadline)
            while not run.done():
                await asyncio.sleep(0.01)
        await worker.close()

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(uvloop.run, ask())
        run_here(tmp_path, monkeypatch, heartbeat)
        asking.result()
    assert (True, False) in pairwise(trimmer.busy)


KEY = {"X-API-Key": "secret"}


def workers() -> set[threading.Thread]:
    """Threads of changes, of all engines."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("change")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.started(tmp_path, "one@1")


def test_stopping_engine_does_not_wait_for_changes(scene: Scene) -> None:
    for version in range(2, 6):
        scene.place(f"one@{version}")
    scene.open.gate.clear()
    before = workers()

    async def ask() -> list[BaseException | None]:
        engine = LocalEngine(scene.repository, Metrics())
        asking = [asyncio.create_task(engine.load("one", str(each))) for each in range(2, 6)]
        while len(scene.open.opened) < 2:
            await asyncio.sleep(0.01)
        assert engine.changing
        engine.drain()
        assert not engine.status.ready
        answers = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), PATIENCE)
        with pytest.raises(NotReadyError, match="the server is stopping"):
            await engine.unload("one", None)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        assert engine.changing
        scene.open.gate.set()
        await closing
        async with asyncio.timeout(PATIENCE):
            while engine._changes:
                await asyncio.sleep(0.01)
        assert not engine.changing
        return answers

    answers = asyncio.run(ask())
    assert [type(answer) for answer in answers] == [NotReadyError] * 4
    until(lambda: workers() <= before)
    # Only the first one of four was opened; the others were still waiting.
    assert len(scene.open.opened) == 2


def test_loads_do_not_delay_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path, Spec())
    write_bundle(tmp_path, Spec(version="2"))
    gate = threading.Event()
    with Client(tmp_path, admin_keys="secret", versions="latest") as client:
        path = "/v2/repository/models/repeat/load"

        def wait(*_: object) -> None:
            assert gate.wait(PATIENCE)

        monkeypatch.setattr(client.repository, "load", wait)

        async def ask() -> tuple[list[httpx.Response], list[httpx.Response]]:
            async with connect(client.app) as http:
                # More loads than asyncio's default executor has threads.
                loads = [asyncio.create_task(http.post(path, headers=KEY)) for _ in range(40)]
                others = asyncio.gather(http.get("/metrics"), http.post("/v2/repository/index"))
                try:
                    answers = await asyncio.wait_for(others, PATIENCE / 3)
                finally:
                    gate.set()
                return answers, await asyncio.gather(*loads)

        others, loads = asyncio.run(ask())
    assert {answer.status_code for answer in others} == {200}
    assert {answer.status_code for answer in loads} == {200}


def test_threads_end_with_the_application(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec())
    before = workers()
    with Client(tmp_path, admin_keys="secret") as client:

        async def serve() -> None:
            async with (
                client.app.router.lifespan_context(client.app),
                connect(client.app) as http,
            ):
                path = "/v2/repository/models/repeat/load"
                assert (await http.post(path, headers=KEY)).status_code == 200
                assert workers() - before

        asyncio.run(serve())
        until(lambda: workers() <= before)
