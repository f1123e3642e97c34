"""More models than memory: `python -m bench.many_models`.

Serves 200 models of 8 MiB with a limit of memory that holds 20 of them, to callers who ask for
models by Zipf's law, and compares every answer. Writes its part of docs/repository.md; `--quick`
does everything for a moment and prints the part instead.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psutil
import uvloop

from bench.page import machine, table, write_part
from bench.serving.contenders import ROOT
from bench.serving.ports import free_port
from bench.serving.process import running
from tests.support.bundles import Spec, write_bundle

_PAGE = ROOT / "docs" / "repository.md"
_MIB = 1024 * 1024
_WEIGHTS_MIB = 8
_CONTEXT = 8
_CALLERS = 16
# Of Zipf's law: how often the n-th model is asked for falls with this power of n.
_EXPONENT = 1.1
_WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class Scale:
    """How much is done: how many models, how many of them fit, and for how long."""

    models: int
    room: int
    seconds: float


_FULL = Scale(models=200, room=20, seconds=90.0)
_QUICK = Scale(models=8, room=3, seconds=1.0)


@dataclass
class Found:
    """What callers saw.

    Attributes:
        present: Seconds of answers of models that were in memory.
        first: Seconds of answers that waited for a load.
        told: Seconds until callers were told to come again.
        wrong: Other answers.
    """

    present: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@contextmanager
def _server(models: Path, folder: Path, **settings: object) -> Iterator[tuple[psutil.Process, str]]:
    """A server that loads on demand; yields its process and URL."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "foretell", "serve", "--models", models, "--load", "on-demand"]
    environment = {"PYTHONPATH": str(ROOT), "FORETELL_LOG_LEVEL": "warning"}
    environment |= {f"FORETELL_{name.upper()}": str(value) for name, value in settings.items()}
    port = url.rpartition(":")[2]
    with running(
        [*command, "--device", "cpu", "--port", port],
        f"{url}/readyz",
        folder / "log",
        environment,
        folder,
    ) as process:
        yield process, url


def _body(number: int, value: float) -> dict[str, object]:
    return {"model": f"m{number}", "inputs": [{"series": [value] * _CONTEXT}]}


def _peak(process: psutil.Process) -> int:
    """Bytes that a process had resident at most."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024


async def _ask(url: str, scale: Scale) -> Found:
    """Have all callers ask, one request after the other, until the time is over."""
    found = Found()
    weights = 1 / np.arange(1, scale.models + 1) ** _EXPONENT
    end = time.perf_counter() + scale.seconds

    async def call(client: httpx.AsyncClient, seed: int) -> None:
        random = np.random.default_rng(seed)
        while time.perf_counter() < end:
            number = int(random.choice(scale.models, p=weights / weights.sum()))
            value = float(random.integers(1, 1000))
            began = time.perf_counter()
            answer = await client.post("/forecast", json=_body(number, value))
            took = time.perf_counter() - began
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                found.told.append(took)
            elif answer.json()["outputs"][0]["content"][0]["mean_forecast"] != [value] * 4:
                found.wrong.append(answer.text)
            else:
                late = "server-timing" in answer.headers
                (found.first if late else found.present).append(took)

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        await asyncio.gather(*(call(client, seed) for seed in range(_CALLERS)))
    return found


def _milliseconds(seconds: Sequence[float], percentile: float) -> str:
    return f"{1000 * np.percentile(seconds, percentile):.1f}" if seconds else "-"


def measure(scale: Scale) -> str:
    """The part of the page."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = folder / "models"
        for number in range(scale.models):
            write_bundle(models, Spec(name=f"m{number}", ballast=_WEIGHTS_MIB))
        with _server(models, folder) as (process, url):
            httpx.post(f"{url}/forecast", json=_body(0, 1.0), timeout=60).raise_for_status()
            one = process.memory_info().rss
        limit = one + scale.room * _WEIGHTS_MIB * _MIB
        settings = {"max_memory_bytes": limit, "load_wait_seconds": _WAIT_SECONDS}
        with _server(models, folder, **settings) as (process, url):
            found = uvloop.run(_ask(url, scale))
            peak = _peak(process)
            metrics = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    if found.wrong:
        raise RuntimeError(f"{len(found.wrong)} wrong answers, such as {found.wrong[0]}")

    def total(name: str) -> int:
        return round(sum(float(line.split()[-1]) for line in metrics if line.startswith(name)))

    asked = len(found.present) + len(found.first) + len(found.told)
    rows = [
        ("answered from memory", len(found.present), found.present),
        ("first callers, who waited for a load", len(found.first), found.first),
        (f"told to come again (after {_WAIT_SECONDS:g} s)", len(found.told), found.told),
    ]
    head = ("", "requests", "part", "median ms", "99th percentile ms", "longest ms")
    lines = [
        (
            what,
            f"{count:,}",
            f"{count / asked:.1%}",
            *(_milliseconds(seconds, percentile) for percentile in (50, 99, 100)),
        )
        for what, count, seconds in rows
    ]
    return (
        f"`make bench-many` wrote this: {scale.models} models of {_WEIGHTS_MIB} MiB, asked for by "
        f"{_CALLERS} callers\nat once by Zipf's law (exponent {_EXPONENT}) for "
        f"{scale.seconds:g} s, the callers on the same CPUs. All {asked:,}\nanswers were right. "
        f"{total('foretell_model_loads_total')} loads, "
        f"{total('foretell_model_evictions_total')} of which put another model out; "
        f"{total('foretell_model_loaded{')} models in memory\nat the end. The process held "
        f"{peak / _MIB:.0f} MiB at most, of the {limit / _MIB:.0f} MiB it might.\n\n"
        f"{table(head, lines)}\n{machine('onnxruntime')}\n"
    )


def main() -> None:
    """Measure, and write the part of the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.many_models", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="for a moment; prints the part")
    quick = parser.parse_args().quick
    part = measure(_QUICK if quick else _FULL)
    print(part)
    if not quick:
        write_part("many-models", part, _PAGE)


if __name__ == "__main__":
    main()
