"""Load from one process: `python -m bench.gpu.load PORT BODY SECONDS CONNECTIONS`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from bench.serving.client import Client, request


async def _load(port: int, body: bytes, seconds: float, connections: int) -> dict[str, float]:
    client = Client(port, [request("/forecast", body)])
    began = time.perf_counter()
    await client.keep_busy(connections, lambda: time.perf_counter() - began < seconds)
    took = time.perf_counter() - began
    await client.close()
    good = client.outcomes.statuses[200]
    return {
        "rate": good / took,
        "p50": client.outcomes.percentile(0.5) * 1e3,
        "p99": client.outcomes.percentile(0.99) * 1e3,
        "failed": client.outcomes.count - good,
    }


if __name__ == "__main__":
    port, body, seconds, connections = sys.argv[1:]
    said = _load(int(port), Path(body).read_bytes(), float(seconds), int(connections))
    print(json.dumps(asyncio.run(said)))
