from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from foretell.service.api.app import create_app
from foretell.service.metrics import Metrics
from foretell.service.ray import tally as module
from foretell.service.ray.door import RayEngine, open_repository
from foretell.service.ray.tally import Tally
from foretell.service.settings import DeviceChoice, Settings
from tests.service.bundles import Spec, softmax_stage, write_bundle
from tests.service.client import Client
from tests.service.ray.local import Calls, LocalEngine, died

BODY = {"model": "one", "inputs": [{"series": [1, 2, 3, 4, 5, 6, 7, 8.25]}]}
KEY = {"X-API-Key": "secret"}
PATIENCE = 60.0


class Cluster:
    """A door and an engine in one process, with its application to be asked."""

    def __init__(self, folder: Path, **given: Any) -> None:
        settings = Settings(models=folder, device="cpu", admin_keys="secret", **given)
        self.counted = Calls(Tally())
        self.engine = LocalEngine(settings, self.counted)
        self.engines = Calls(self.engine)
        self.repository = open_repository(settings, self.engines, 8)
        self.repository.start()
        self.door = RayEngine(self.repository, Metrics(), self.counted)
        app = create_app(settings, self.door)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://door")

    async def forecast(self, body: object = BODY) -> httpx.Response:
        return await self.http.post("/forecast", json=body)

    async def close(self) -> None:
        await self.http.aclose()
        await self.door.close()
        await self.engine._teller.close()
        self.engine.held.clear()
        self.engine._batcher.close(5)


def served(folder: Path, asking: Callable[[Cluster], Any], **settings: Any) -> None:
    async def ask() -> None:
        cluster = Cluster(folder, **settings)
        await cluster.door.start()
        try:
            await asyncio.wait_for(asking(cluster), PATIENCE)
        finally:
            await cluster.close()

    asyncio.run(ask())


def test_it_answers_what_a_plain_server_answers(repository: Path) -> None:
    attention = {"options": {"attention": {}}}
    quantiles = {"options": {"quantiles": [0.1, 0.9], "horizon": 4}}
    bodies = [
        BODY,
        {**BODY, "inputs": [{"series": [0.1] * 8}] * 3},
        {**BODY, "options": {"horizon": 10}},
        {**BODY, **quantiles, "model": "two"},
        {**BODY, **attention, "model": "two@1"},
        {**BODY, "model": "three"},
        {**BODY, "model": "one@7"},
        {**BODY, "inputs": [{"series": [1, 2]}]},
    ]
    with Client(repository) as plain:
        expected = [plain.forecast(body) for body in bodies]

    async def ask(cluster: Cluster) -> None:
        for body, wanted in zip(bodies, expected, strict=True):
            found = await cluster.forecast(body)
            assert found.status_code == wanted.status_code, found.text
            assert without_ids(found.json()) == without_ids(wanted.json())

    served(repository, ask)


def without_ids(told: Any) -> Any:
    if isinstance(told, dict):
        return {k: without_ids(v) for k, v in told.items() if k not in ("id", "created_at")}
    return [without_ids(each) for each in told] if isinstance(told, list) else told


def test_only_what_is_asked_for_is_loaded(repository: Path) -> None:
    async def ask(cluster: Cluster) -> None:
        models = (await cluster.http.get("/models")).json()
        assert {one["name"] for one in models} == {"one", "two"}
        assert not cluster.engine.held
        await cluster.forecast()
        assert [key.partition("#")[0] for key in cluster.engine.held] == ["one@1"]

    served(repository, ask)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_models_tell_where_the_engines_run_them(repository: Path, device: DeviceChoice) -> None:
    settings = Settings(models=repository, device=device)
    models = open_repository(settings, Calls(None), 8)
    models.start()
    try:
        assert models.directory.find("one").provider == f"{device.upper()}ExecutionProvider"
    finally:
        models.close(5)


def test_callers_hear_of_what_is_full_and_what_is_lost(repository: Path) -> None:
    async def ask(cluster: Cluster) -> None:
        cluster.engines.raises += [BackPressureError(1, 1)]
        full = await cluster.forecast()
        assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
        assert full.json()["error"]["type"] == "queue_full"
        cluster.engines.raises += [died(), died()]
        lost = await cluster.forecast()
        assert (lost.status_code, lost.headers["Retry-After"]) == (503, "1")
        assert lost.json()["error"]["type"] == "engine_lost"
        cluster.engines.raises += [died()]
        assert (await cluster.forecast()).status_code == 200

    served(repository, ask)


def test_the_deadline_is_the_callers(repository: Path) -> None:
    async def ask(cluster: Cluster) -> None:
        async with cluster.engine._loading:
            late = await cluster.http.post("/forecast", json=BODY, headers={"X-Timeout-Ms": "50"})
        assert late.json()["error"]["type"] == "deadline_exceeded"

    served(repository, ask)


def test_the_folder_decides_what_is_served(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="one"))

    async def ask(cluster: Cluster) -> None:
        assert (await cluster.http.get("/readyz")).status_code == 200
        for change in ("load", "unload"):
            path = f"/v2/repository/models/one/{change}"
            refused = await cluster.http.post(path, json={}, headers=KEY)
            assert refused.status_code == 422
            assert "a cluster serves what its repository holds" in refused.text
        write_bundle(tmp_path, Spec(name="one", version="2"))
        await asyncio.to_thread(cluster.repository.look)
        index = await cluster.http.post("/v2/repository/index", json={})
        assert [(one["version"], one["state"]) for one in index.json()] == [
            ("1", "READY"),
            ("2", "READY"),
        ]
        assert (await cluster.forecast()).json()["model_version"] == "2"

    served(tmp_path, ask)


def test_a_damaged_bundle_is_told_from_others(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="one", stages=(softmax_stage(),)))
    (write_bundle(tmp_path, Spec(name="two")) / "manifest.json").write_text("{}")
    (write_bundle(tmp_path, Spec(name="three")) / "weights.bin").write_bytes(b"damaged")

    async def ask(cluster: Cluster) -> None:
        assert (await cluster.forecast()).status_code == 200
        # Doors read manifests, engines the rest.
        for name in ("two", "three"):
            refused = await cluster.forecast({**BODY, "model": name})
            assert (refused.status_code, refused.json()["error"]["type"]) == (503, "not_ready")
        assert (await cluster.http.get("/readyz")).status_code == 503

    served(tmp_path, ask)


def test_what_is_counted_is_counted_of_all(repository: Path) -> None:
    async def ask(cluster: Cluster) -> None:
        await cluster.forecast()
        text = ""
        # A worker may count its batch after that was answered.
        while "foretell_batch_windows_count" not in text:
            await cluster.engine._teller.tell()
            text = (await cluster.http.get("/metrics")).text
        assert 'foretell_model_loads_total{model="one",outcome="loaded",version="1"} 1.0' in text
        labels = '{model="one",route="/forecast",status="200",version="1"}'
        assert f"foretell_requests_total{labels} 1.0" in text
        assert 'foretell_batch_windows_count{model="one",version="1"} 1.0' in text
        assert 'provider="CPUExecutionProvider"' in text
        assert "foretell_requests_in_flight 1.0" in text
        stats = (await cluster.http.get("/v2/models/one/stats")).json()["model_stats"]
        assert stats[0]["inference_count"] == 1
        assert stats[0]["execution_count"] == 1

    served(repository, ask)


def test_while_nobody_counts_nothing_is_lost(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(cluster: Cluster) -> None:
        await cluster.forecast()
        cluster.counted.raises += [died()] * 2
        lost = await cluster.http.get("/metrics")
        assert (lost.status_code, lost.json()["error"]["type"]) == (503, "engine_lost")
        monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.0)
        assert (await cluster.http.get("/metrics")).status_code == 503
        monkeypatch.undo()
        text = (await cluster.http.get("/metrics")).text
        labels = '{model="one",route="/forecast",status="200",version="1"}'
        assert f"foretell_requests_total{labels} 1.0" in text

    served(repository, ask)


def test_counts_are_told_by_themselves(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COUNT_SECONDS", 0.01)

    async def ask(cluster: Cluster) -> None:
        # Neither its death nor what Ray Serve says of that ends the telling.
        cluster.counted.raises += [died(), DeploymentUnavailableError(None)]
        await cluster.forecast()
        tally = cluster.counted.target
        assert isinstance(tally, Tally)
        wanted = [("foretell_requests", "/forecast", "one", "1", "200")]
        wanted += [("foretell_model_loads", "one", "1", "loaded")]
        while not all(tally._metrics.counts.count(*key) for key in wanted):
            await asyncio.sleep(0.005)

    served(repository, ask)


def test_who_is_gone_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        tally = Tally()
        await tally.tell("a", 1, ([], []), 3, {})
        assert b"foretell_requests_in_flight 3.0" in await tally.render()
        monkeypatch.setattr(module, "_GONE_SECONDS", -1.0)
        assert b"foretell_requests_in_flight 0.0" in await tally.render()

    asyncio.run(ask())


def test_what_was_told_counts_once_however_long_its_teller_was_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask() -> None:
        tally, metrics = Tally(), Metrics()
        metrics.rejected("queue_full")
        taken = metrics.counts.take()
        await tally.tell("a", 1, taken, 0, {})
        with monkeypatch.context() as patch:
            patch.setattr(module, "_GONE_SECONDS", -1.0)
            await tally.render()
        # It has not heard the answer.
        await tally.tell("a", 1, taken, 0, {})
        assert b'foretell_rejected_total{reason="queue_full"} 1.0' in await tally.render()

    asyncio.run(ask())


def test_a_door_that_is_to_end_refuses_what_comes_and_answers_what_it_has(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HEARD_SECONDS", 0.0)

    async def ask(cluster: Cluster) -> None:
        tally = cluster.counted.target
        assert isinstance(tally, Tally)
        await cluster.engine._loading.acquire()
        accepted = asyncio.ensure_future(cluster.forecast())
        while not cluster.engines.given:
            await asyncio.sleep(0.005)
        await tally.stop()
        await cluster.door._teller.tell()
        assert not await tally.stop()
        refused = await cluster.forecast()
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "engine_lost")
        assert refused.headers["Retry-After"] == "1"
        unready = await cluster.http.get("/readyz")
        assert (unready.status_code, unready.json()["ready"]) == (503, False)
        assert set(unready.json()["models"].values()) == {"draining"}
        assert (await cluster.http.get("/v2/health/ready")).status_code == 503
        cluster.engine._loading.release()
        assert (await accepted).status_code == 200
        await cluster.door._teller.tell()
        assert await tally.stop()
        # Another tally in its place does not know of it yet.
        tally._stopped_at = None
        await cluster.door._teller.tell()
        assert (await cluster.forecast()).status_code == 503

    served(repository, ask)


def test_who_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEARD_SECONDS", 0.0)

    async def ask() -> None:
        tally = Tally()
        assert not await tally.tell("a", 1, ([], []), 3, {})
        assert not await tally.stop()
        assert await tally.tell("a", 2, ([], []), 2, {})
        monkeypatch.setattr(module, "_GONE_SECONDS", -1.0)
        assert await tally.stop()

    asyncio.run(ask())


def test_every_door_has_time_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "time", Mock(monotonic=lambda: now[0]))

    async def ask() -> None:
        # Who has told a tally nothing yet, as another one was there before, may be answering.
        tally = Tally()
        assert not await tally.stop()
        now[0] += 2.5
        assert not await tally.stop()
        now[0] += 0.5
        assert await tally.stop()

    asyncio.run(ask())
