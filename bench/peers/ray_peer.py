from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import ray
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=2, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.5})
class Forecaster:
    def __init__(self, graph: str, scripts: str) -> None:
        sys.path.append(scripts)
        from session import open_session

        self.session = open_session(graph)

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)
    async def forecast(self, windows: list[np.ndarray]) -> list[np.ndarray]:
        return list(self.session.run(None, {"history": np.stack(windows)})[0])

    async def __call__(self, request: Request) -> dict[str, list[list[float]]]:
        series = np.array((await request.json())["series"], np.float32)
        return {"forecast": (await self.forecast(series)).tolist()}


ray.init(
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=100 * 1024 * 1024,
    _node_ip_address="127.0.0.1",
)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(Forecaster.bind(sys.argv[1], str(Path(__file__).parent)), route_prefix="/forecast")
signal.sigwait({signal.SIGTERM, signal.SIGINT})
ray.shutdown()
