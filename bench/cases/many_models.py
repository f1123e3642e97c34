"""More models than memory, with requests for them by Zipf's law; every answer is compared."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import numpy as np
import uvloop

from bench.harness import Result, Row, Run, status_mib
from bench.servers import metrics, resident
from bench.servers import ours as serve
from tests.support.bundles import Spec, write_bundle

_WEIGHTS_MIB, _CONTEXT, _CALLERS, _WAIT_SECONDS = 8, 8, 16, 5.0
# How often the n-th model is requested falls with this power of n.
_EXPONENT = 1.1
_MEMORY, _LOAD, _REFUSED = "answered from memory", "waited for a load", "refused with Retry-After"


def _body(number: int, value: float) -> dict[str, Any]:
    return {"model": f"m{number}", "inputs": [{"series": [value] * _CONTEXT}]}


async def _ask(port: int, models: int, seconds: float) -> dict[str, list[float]]:
    """Send requests from all clients until the time is over; seconds by outcome."""
    found: dict[str, list[float]] = {_MEMORY: [], _LOAD: [], _REFUSED: []}
    weights = 1 / np.arange(1, models + 1) ** _EXPONENT
    end = time.perf_counter() + seconds

    async def call(http: httpx.AsyncClient, seed: int) -> None:
        random = np.random.default_rng(seed)
        while time.perf_counter() < end:
            number = int(random.choice(models, p=weights / weights.sum()))
            value = float(random.integers(1, 1000))
            began = time.perf_counter()
            answer = await http.post("/forecast", json=_body(number, value))
            took = time.perf_counter() - began
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                found[_REFUSED].append(took)
                continue
            content = answer.json()["outputs"][0]["content"][0]
            if content["mean_forecast"] != [value] * 4:
                raise RuntimeError(f"a wrong answer: {answer.text}")
            found[_LOAD if "server-timing" in answer.headers else _MEMORY].append(took)

    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as http, asyncio.TaskGroup() as group:
        for seed in range(_CALLERS):
            group.create_task(call(http, seed))
    return found


def measure(run: Run) -> Result:
    """Serve all models with memory for a few of them."""
    models, room = run.pick((200, 20), (8, 3))
    repository, scratch = run.folder / "models", run.folder / "server"
    for number in range(models):
        write_bundle(repository, Spec(name=f"m{number}", ballast=_WEIGHTS_MIB))
    with serve(repository, scratch, load="on-demand") as (process, port):
        httpx.post(f"http://127.0.0.1:{port}/forecast", json=_body(0, 1.0), timeout=60)
        limit = resident(process) + room * _WEIGHTS_MIB
    settings = {"max_memory_bytes": limit * 2**20, "load_wait_seconds": _WAIT_SECONDS}
    with serve(repository, scratch, load="on-demand", **settings) as (process, port):
        found = uvloop.run(_ask(port, models, run.duration(90, 1)))
        names = ("foretell_model_loads_total", "foretell_model_evictions_total")
        loads, evictions, loaded = metrics(port, *names, r"foretell_model_loaded\{")
        peak = int(status_mib("VmHWM", process.pid))
    total = sum(map(len, found.values()))
    rows: list[Row] = []
    for what, seconds in found.items():
        row: dict[str, Any] = {
            "": what,
            "requests": len(seconds),
            "part": f"{len(seconds) / total:.1%}",
        }
        if seconds:
            row |= {
                name: 1e3 * float(np.percentile(seconds, share))
                for name, share in (("median, ms", 50), ("p99, ms", 99), ("longest, ms", 100))
            }
        rows.append(row)
    memory = {
        "loads": round(loads),
        "evictions": round(evictions),
        "in memory at the end": round(loaded),
        "peak, MiB": peak,
        "limit, MiB": limit,
    }
    return Result({"answers": rows, "memory": [memory]})
