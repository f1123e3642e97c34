"""foretell on Ray Serve: every replica is a whole server. docs/guides/ray.md says how to use it."""

from ray import serve
from starlette.types import ASGIApp, Receive, Scope, Send

from foretell.service import logs
from foretell.service.api.app import create_app
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.errors import ServiceError
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings

# As many as `FORETELL_MAX_LOADED`: Ray forgets models that the server evicts.
MODELS = 8


@serve.multiplexed(max_num_models_per_replica=MODELS)
async def note(name: str) -> str:
    """Inform Ray that this replica has a model; the server itself loads it."""
    return name


class Multiplexed:
    """ASGI middleware that notes the model which a request is routed by, if it is served."""

    def __init__(self, app: ASGIApp, engine: LocalEngine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and (name := serve.get_multiplexed_model_id()):
            try:
                self._engine.registry.find(name)
            except ServiceError:
                # The server answers with the error, and Ray notes nothing.
                pass
            else:
                await note(name)
        await self._app(scope, receive, send)


def server() -> ASGIApp:
    """The server of a replica, by the `FORETELL_` variables of its node."""
    settings, metrics = Settings(), Metrics()
    logs.configure(settings.log_level, settings.log_format)
    engine = LocalEngine(load(settings, metrics), metrics)
    app = create_app(settings, engine)
    app.add_middleware(Multiplexed, engine=engine)
    return app


app = serve.deployment(
    name="Server",
    num_replicas=2,
    # Further requests wait better in the proxy: a replica answers on one thread.
    max_ongoing_requests=256,
    ray_actor_options={"num_cpus": 1},
    # A replica answers accepted requests before it stops.
    graceful_shutdown_timeout_s=Settings.model_fields["grace_seconds"].default + 5,
)(serve.ingress(server)()).bind()
