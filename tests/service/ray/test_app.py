from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.errors import StartError
from foretell.service.ray import app as module
from foretell.service.ray import tally as telling
from foretell.service.ray.app import DOOR, ENGINE, TALLY, Plan, application, build_app
from foretell.service.ray.tally import Tally
from foretell.service.settings import Settings
from tests.service.ray.local import Calls


def deployed(**given: Any) -> dict[str, Any]:
    """The deployments of an application, by name."""
    app: Any = build_app({"models": "models", **given})
    found = {app._bound_deployment.name: app._bound_deployment}
    for part in app._bound_deployment.init_args:
        found[part._bound_deployment.name] = part._bound_deployment
    return found


def test_what_is_deployed() -> None:
    found = deployed()
    assert found.keys() == {DOOR, ENGINE, TALLY}
    assert [found[name].num_replicas for name in (DOOR, ENGINE, TALLY)] == [1, 1, 1]
    assert found[ENGINE].ray_actor_options == {"num_cpus": 1, "num_gpus": 0}
    # As many as fill batches, and not all: another engine may be free.
    assert found[ENGINE].max_ongoing_requests == 32
    assert found[ENGINE].max_queued_requests == 2048
    assert found[DOOR].ray_actor_options["num_cpus"] == 1
    assert found[TALLY].ray_actor_options["num_cpus"] == 0


def test_what_is_asked_for() -> None:
    found = deployed(
        doors=3, engines="2:8", gpus_per_engine=1.0, max_queue=4096, grace_seconds=7, threads=4
    )
    assert found[DOOR].num_replicas == 3
    engine = found[ENGINE]
    assert engine.ray_actor_options == {"num_cpus": 0, "num_gpus": 1.0}
    scaling = engine._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 8)
    assert scaling.target_ongoing_requests == 256
    assert engine.max_ongoing_requests == 512
    assert engine.max_queued_requests == 4096
    for each in found.values():
        assert each._deployment_config.graceful_shutdown_timeout_s == 7
    threads = deployed(threads=4, max_batch=2)[ENGINE]
    assert threads.ray_actor_options["num_cpus"] == 4
    assert threads.max_ongoing_requests == 32
    assert deployed(engines="3")[ENGINE].num_replicas == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engines": "4:2"}, "--engines: expected a number or MIN:MAX, such as 1:8, got '4:2'"),
        ({"engines": "some"}, "--engines: expected a number or MIN:MAX"),
        ({"engines": "0"}, "--engines: expected"),
        ({"engines": "1:"}, "--engines: expected"),
        ({"doors": 0}, "--doors: Input should be greater than or equal to 1"),
        ({"models_per_engine": 0}, "--models-per-engine: "),
        ({"gpus_per_engine": -1}, "--gpus-per-engine: "),
        ({"device": "cuda"}, "device cuda: needs --gpus-per-engine"),
        ({"operations_port": 9000}, "FORETELL_OPERATIONS_PORT: "),
        ({"max_queue": 0}, "--max-queue: "),
        ({"other": 0}, "--other: "),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(StartError) as raised:
        build_app({"models": "models", **given})
    assert str(raised.value).startswith(said)


def test_engines_may_be_none_until_somebody_asks() -> None:
    assert Plan.read(engines="0:4").engines == (0, 4)


def test_a_plan_is_of_one_device() -> None:
    settings = Settings(models=Path("models"))
    app: Any = application(settings, Plan.read(gpus_per_engine=0.5))
    engine = app._bound_deployment.init_args[0]._bound_deployment
    assert engine.ray_actor_options["num_gpus"] == 0.5
    assert engine.max_ongoing_requests == 512


def test_a_door_that_nobody_has_asked_hears_of_the_end(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally()
    monkeypatch.setattr(module.logs, "configure", lambda *_: None)
    monkeypatch.setattr(module, "keep_what_is_loaded", lambda: None)
    monkeypatch.setattr(module.serve, "get_deployment_handle", lambda _: Calls(tally))
    monkeypatch.setattr(telling, "_COUNT_SECONDS", 0.005)

    async def ask() -> None:
        await tally.stop()
        app: Any = module._door(Settings(models=repository, device="cpu"), 8)()
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://door") as http,
            asyncio.timeout(60),
        ):
            while (await http.get("/readyz")).status_code == 200:
                await asyncio.sleep(0.005)
            refused = await http.post("/forecast", json={"inputs": [{"series": [1] * 8}]})
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")

    asyncio.run(ask())
