"""More models than fit in memory, as clients and operators see them."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import uvloop

from foretell.bundle import layout
from foretell.service.engine.limits import resident_bytes
from foretell.service.engine.model import Model
from foretell.service.errors import NotReadyError
from tests.service.client import Client
from tests.service.engine.conftest import System, deadline, outcome, until_async
from tests.service.loops import on_loop
from tests.support.bundles import Spec, write_bundle

_MODELS, _ROOM = 12, 3
_PATIENCE = 30.0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `m0` to `m11`, whose horizons are 1 to 12."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(_MODELS):
        write_bundle(folder, Spec(name=f"m{number}", horizon=number + 1))
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # A collection for each evicted model would take long with all modules of the tests.
    monkeypatch.setattr("foretell.service.engine.cache.gc", Mock())


@pytest.fixture
def server(many: Path) -> Iterator[Client]:
    with Client(many, load="on-demand", max_loaded=_ROOM, keep="m0") as server:
        yield server


def body(number: int, value: float = 1.0) -> dict[str, object]:
    return {"model": f"m{number}", "inputs": [{"series": [value] * 8}]}


def resident(server: Client) -> set[str]:
    return {model.name for model in server.repository.models if model.resident}


def metric(server: Client, line: str) -> float:
    for each in server.get("/metrics").text.splitlines():
        if each.startswith(line + " "):
            return float(each.split()[-1])
    raise AssertionError(line)


def test_many_models_are_served_with_few_in_memory(server: Client) -> None:
    assert resident(server) == {"m0"}
    for end in ("loaded", "expired", "refused"):
        assert metric(server, f'foretell_load_wait_seconds_count{{outcome="{end}"}}') == 0
    names = {card["name"]: card for card in server.get("/models").json()}
    assert sorted(names) == sorted(f"m{number}" for number in range(_MODELS))
    assert names["m7"]["horizon"] == 8
    assert server.get("/readyz").json()["models"]["m7@1"] == "ready"
    # An invalid request loads no model.
    assert server.error(body(7) | {"inputs": [{"series": []}]})["type"] == "invalid_input"
    assert resident(server) == {"m0"}
    for _ in range(2):
        for number in range(_MODELS):
            answer = server.forecast(body(number, float(number)))
            [content] = answer.json()["outputs"][0]["content"]
            assert content["mean_forecast"] == [float(number)] * (number + 1)
            timing = answer.headers.get("server-timing", "")
            assert timing.startswith("load;dur=") == (number > 0)
            assert {"m0", f"m{number}"} <= resident(server)
            assert len(resident(server)) <= _ROOM + 1
    assert "server-timing" not in server.forecast(body(_MODELS - 1)).headers
    assert resident(server) == {"m0", "m9", "m10", "m11"}
    for name, loads in (("m5", 2), ("m0", 1)):
        counted = f'foretell_model_loads_total{{model="{name}",outcome="loaded",version="1"}}'
        assert metric(server, counted) == loads
    assert metric(server, 'foretell_model_evictions_total{model="m5",version="1"}') == 2
    assert metric(server, 'foretell_model_loaded{model="m5",version="1"}') == 0
    assert metric(server, 'foretell_model_loaded{model="m9",version="1"}') == 1
    assert metric(server, 'foretell_load_wait_seconds_count{outcome="loaded"}') == 22


def test_models_are_limited_by_bytes(many: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_bundle(tmp_path, Spec(name=name, ballast=1))
    huge = write_bundle(tmp_path, Spec(name="huge"))
    with (huge / layout.WEIGHTS).open("r+b") as file:
        file.truncate(2**32)
    limit = resident_bytes() + 2**30
    with Client(tmp_path, load="on-demand", max_memory_bytes=limit) as server:
        for name in ("one", "two"):
            answer = server.forecast({"model": name, "inputs": [{"series": [1.0] * 8}]})
            assert answer.is_success
        answer = server.forecast({"model": "huge", "inputs": [{"series": [1.0] * 8}]})
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "not_ready"
        # The failed load evicted no model, and the others stay ready.
        assert resident(server) == {"one", "two"}
        ready = server.get("/readyz")
        assert ready.status_code == 200
        message = ready.json()["models"]["huge@1"]
        assert message.startswith("huge/1: needs about 16384 MiB of memory; the process holds")


def test_first_caller_gets_retry_after(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    open_model = Model.open
    monkeypatch.setattr(server.repository._cache, "_wait_seconds", 0.05)
    monkeypatch.setattr(Model, "open", lambda model: gate.wait(_PATIENCE) and open_model(model))
    answer = server.forecast(body(5))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    error = answer.json()["error"]
    assert error["type"] == "model_loading"
    assert error["message"].startswith("m5@1 is being loaded, for longer than the 0.05 s")
    # Other models answer meanwhile.
    assert server.forecast(body(0)).is_success
    assert metric(server, 'foretell_load_wait_seconds_count{outcome="expired"}') == 1
    gate.set()
    server.repository.load("m5")
    assert "server-timing" not in server.forecast(body(5)).headers


@on_loop
async def test_models_on_demand_through_an_http_worker(many: Path, tmp_path: Path) -> None:
    system = System(many, tmp_path / "engine", load="on-demand", max_loaded=_ROOM, keep="m0")
    async with system.engine() as engine, system.worker() as worker:
        for number in [*range(_MODELS), 0, 1]:
            model = worker.registry.find(f"m{number}")
            assert model.manifest.horizon == number + 1
            feeds = {"history": np.full((2, 8, 1), 3.0, np.float32)}
            going = model.submit(feeds, deadline=deadline())
            found = (await outcome(going))["forecast"]
            assert found.tolist() == [[[3.0]] * (number + 1)] * 2
            assert (going.loading > 0) == (number > 0)
            assert going.submitted <= going.began < going.ended
            assert going.batch >= 1
        assert sum(model.resident for model in engine.repository.models) == _ROOM + 1
        # The server does not wait for a client that has disconnected.
        cancelled = worker.registry.find("m5").submit(feeds, deadline=deadline())
        cancelled.cancel()
        await asyncio.sleep(0)


def test_http_workers_get_only_changed_models(many: Path, tmp_path: Path) -> None:
    """Loads and evictions do not change the workers' registry."""
    shutil.copytree(many, tmp_path / "models")
    weights = tmp_path / "models" / "m7" / "1" / layout.WEIGHTS
    content = weights.read_bytes()
    system = System(tmp_path / "models", tmp_path / "engine", load="on-demand", max_loaded=_ROOM)
    feeds = {"history": np.full((1, 8, 1), 3.0, np.float32)}

    async def run() -> None:
        async with system.engine() as engine, system.worker() as worker:
            registry = worker.registry
            for number in range(_MODELS):
                run = registry.find(f"m{number}").submit(feeds, deadline=deadline())
                await outcome(run)
            # A load is answered after its changes.
            await worker.load("m2", "1")
            assert sum(model.resident for model in engine.repository.models) == _ROOM
            assert worker.registry is registry
            weights.write_bytes(b"other")
            with pytest.raises(NotReadyError):
                await outcome(registry.find("m7").submit(feeds, deadline=deadline()))
            message = "m7/1/weights.bin: sha256 differs from the manifest; the file was changed"
            await until_async(lambda: worker.status.models["m7@1"] == message)
            assert worker.registry.get("m7", "1").model.failure == message
            assert {*worker.status.models.values()} == {"ready", message}
            weights.write_bytes(content)
            await worker.load("m7", "1")
            assert {*worker.status.models.values()} == {"ready"}

    uvloop.run(run())
