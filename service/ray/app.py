"""The deployments of a server on a cluster, and how they are put together."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from ray import serve
from ray.serve import Application, Deployment

from foretell.service import logs
from foretell.service.api.app import create_app
from foretell.service.engine.resources import keep_what_is_loaded
from foretell.service.engine.runtime import CPU_BATCH, GPU_BATCH, Runtime
from foretell.service.errors import StartError
from foretell.service.metrics import Metrics
from foretell.service.ray.door import RayEngine, open_repository
from foretell.service.ray.engine import Engine, Held
from foretell.service.ray.handles import Handle
from foretell.service.ray.tally import Tally
from foretell.service.settings import DeviceChoice, Settings
from foretell.service.tracing import open_tracer

DOOR, ENGINE, TALLY = "Door", "Engine", "Tally"

# Of batches of one window each: one that runs and one that fills, and as many again before a model
# gets a second engine.
_BATCHES, _MOST_BATCHES = 2, 4
# A door answers on one thread: further requests wait better in their sockets.
_DOOR_REQUESTS = 1024
_HEALTH_SECONDS = 2.0
# How often one that is to end looks whether it has answered all.
_LOOK_SECONDS = 0.5
# While all engines that hold a model are at their limit, doors ask again after such pauses. Ray's
# own, of half a second, let engines run dry.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.016


class Plan(BaseModel):
    """How a cluster is used.

    Attributes:
        doors: Replicas that read requests and write answers; each answers on one thread.
        engines: `MIN:MAX` replicas that run models, by how much waits for them; or a fixed number.
        gpus_per_engine: GPUs that each has for itself, or what share of one; 0 runs on CPUs.
        models_per_engine: Most models that each holds; who was used least lately has to go.
        cpus_per_door: CPUs that Ray reserves for each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    doors: int = Field(default=1, ge=1)
    engines: Annotated[tuple[int, int], BeforeValidator(lambda value: _range(value))] = (1, 1)
    gpus_per_engine: float = Field(default=0.0, ge=0)
    models_per_engine: int = Field(default=8, ge=1)
    cpus_per_door: float = Field(default=1.0, ge=0)

    @classmethod
    def read(cls, **given: Any) -> Plan:  # noqa: ANN401 - pydantic checks them
        """A plan of the given values.

        Raises:
            StartError: one is wrong; the message names its flag.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][0]).replace("_", "-")
            said = first.get("ctx", {}).get("error", first["msg"])
            raise StartError(f"--{name}: {said}") from None


def _range(value: object) -> object:
    if not isinstance(value, int | str):
        return value
    least, colon, most = str(value).partition(":")
    try:
        found = int(least), int(most if colon else least)
    except ValueError:
        found = 1, 0
    if not 0 <= found[0] <= found[1] or not found[1]:
        raise ValueError(f"expected a number or MIN:MAX, such as 1:8, got {value!r}")
    return found


def build_app(args: dict[str, Any]) -> Application:
    """The application for `serve run` and `serve deploy`.

    Args:
        args: Fields of `Plan` and of `Settings`, which the environment has the rest of.

    Raises:
        StartError: one is missing or wrong.
    """
    own = {name: value for name, value in args.items() if name in Plan.model_fields}
    others = {name: value for name, value in args.items() if name not in own}
    return application(Settings.read(**others), Plan.read(**own))


def application(
    settings: Settings,
    plan: Plan,
    open_runtime: Callable[[DeviceChoice], Runtime] = Runtime,
) -> Application:
    """The application: doors, engines, and what adds up their counts.

    Args:
        settings: Of every door and engine.
        plan: How many, and on what.
        open_runtime: Opens the device of an engine.

    Raises:
        StartError: a setting is not for clusters, or does not fit the plan.
    """
    if settings.operations_port is not None:
        raise StartError("FORETELL_OPERATIONS_PORT: Ray Serve has one port; unset it")
    if settings.device == "cuda" and not plan.gpus_per_engine:
        raise StartError("device cuda: needs --gpus-per-engine")
    device: DeviceChoice = "cuda" if plan.gpus_per_engine else "cpu"
    settings = settings.model_copy(update={"device": device})
    tally = _deployment(Tally, TALLY, settings, num_replicas=1, ray_actor_options={"num_cpus": 0})
    counted = tally.bind()
    engines = _engines(settings, plan, open_runtime).bind(counted)
    doors = _deployment(
        serve.ingress(_door(settings, _largest_batch(settings, plan)))(),
        DOOR,
        settings,
        num_replicas=plan.doors,
        max_ongoing_requests=_DOOR_REQUESTS,
        ray_actor_options={"num_cpus": plan.cpus_per_door},
    )
    # It finds them by their names: what it is bound to is deployed with it.
    return doors.bind(engines, counted)


def _deployment(
    kind: type,
    name: str,
    settings: Settings,
    **options: Any,  # noqa: ANN401 - Ray checks them
) -> Deployment:
    return serve.deployment(
        name=name,
        graceful_shutdown_timeout_s=settings.grace_seconds,
        graceful_shutdown_wait_loop_s=_LOOK_SECONDS,
        health_check_period_s=_HEALTH_SECONDS,
        logging_config={"enable_access_log": False, "log_level": settings.log_level.upper()},
        **options,
    )(kind)


def _largest_batch(settings: Settings, plan: Plan) -> int:
    return settings.max_batch or (GPU_BATCH if plan.gpus_per_engine else CPU_BATCH)


def _door(settings: Settings, batch: int) -> Callable[[], object]:
    """What builds the application of a door, in its replica."""

    def build() -> object:
        logs.configure(settings.log_level, settings.log_format)
        engines: Any = serve.get_deployment_handle(ENGINE)
        repository = open_repository(settings, engines, batch)
        repository.start()
        keep_what_is_loaded()
        tally: Any = serve.get_deployment_handle(TALLY)
        engine = RayEngine(repository, Metrics(), tally)
        app = create_app(settings, engine, tracer=open_tracer() if settings.traces else None)

        # Ray runs this on the event loop of the requests, before there are any.
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            await engine.start()
            yield

        app.include_router(APIRouter(lifespan=lifespan))
        return app

    return build


def _engines(
    settings: Settings, plan: Plan, open_runtime: Callable[[DeviceChoice], Runtime]
) -> Deployment:
    """The deployment of the engines.

    Ray's own batching (`serve.batch`) is not used: it waits for a batch to fill, and knows neither
    windows nor fair shares. Calls reach the engine's batcher one by one, as many at a time as fill
    its batches.
    """

    class Multiplexed(Engine):
        """An engine whose models Ray knows of."""

        def __init__(self, tally: Handle) -> None:
            logs.configure(settings.log_level, settings.log_format)
            super().__init__(settings, tally, open_runtime)
            keep_what_is_loaded()

        @serve.multiplexed(max_num_models_per_replica=plan.models_per_engine)  # type: ignore[untyped-decorator]
        async def hold(self, key: str) -> Held:
            return await self.open(key)

    cpus = 0 if plan.gpus_per_engine else settings.threads or 1
    workers = math.ceil(plan.gpus_per_engine) or cpus
    batches = _largest_batch(settings, plan) * workers
    least, most = plan.engines
    scaling: dict[str, Any] = {"num_replicas": least}
    if least < most:
        scaling = {
            "autoscaling_config": {
                "min_replicas": least,
                "max_replicas": most,
                "target_ongoing_requests": _BATCHES * batches,
            }
        }
    return _deployment(
        Multiplexed,
        ENGINE,
        settings,
        **scaling,
        max_ongoing_requests=_MOST_BATCHES * batches,
        max_queued_requests=settings.max_queue,
        ray_actor_options={"num_cpus": cpus, "num_gpus": plan.gpus_per_engine},
        request_router_config={
            "initial_backoff_s": _FIRST_PAUSE,
            "max_backoff_s": _LONGEST_PAUSE,
        },
    )
