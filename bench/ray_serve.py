"""What a second node of a Ray cluster brings, and its loss or its end costs.

`python -m bench.ray_serve`: two nodes of one CPU each on this machine. The device is none: a
session waits for a given time a batch (`bench/waiting.py`), so that the CPUs of one machine are
enough for the rest. Writes its part of docs/ray.md; `--quick` prints it instead, after a moment of
each.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import ray
from ray import serve
from ray.cluster_utils import Cluster

from bench.page import PAGE, machine, table, write_part
from bench.serving.ports import free_port
from bench.waiting import BATCH_SECONDS, WaitingRuntime
from foretell.service.ray.app import Plan, application
from foretell.service.ray.proxy import CALLBACK, PATH
from foretell.service.ray.run import drain
from foretell.service.settings import Settings
from tests.service.bundles import Spec, write_bundle

# Windows of a batch, and callers: more than both nodes take at a time.
_BATCH = 4
_CALLERS = 48
_AGAIN_SECONDS = 0.1
_PATIENCE = 120.0
# For what a server has accepted at its end.
_GRACE_SECONDS = 30.0
# Of the pace before a node was lost, over so many seconds: the cluster is whole again.
_WHOLE, _WHOLE_SECONDS = 0.9, 3.0

_PART = """\
`make bench-ray` wrote this part: a cluster of two nodes with one CPU each, on one machine; a model
whose device takes {milliseconds:.0f} ms for a batch of up to {batch} windows, whatever the CPUs do,
so long that these carry both nodes with their doors and all callers besides;
{callers} callers with one series each, who ask again as soon as they are answered.

{machine}

{table}
A second node brings **{ratio:.2f} times** the forecasts. It was killed under load, and another one
came in its place:

{lost}
One engine of the two was then taken away, as Ray does where there is less to do, and at last the
server was told to end, as `foretell serve-ray` does at SIGTERM; both under the same load:

{ended}
"""


@dataclass
class Load:
    """Callers who keep asking, each for a forecast that nobody else asks for; on their own thread.

    Attributes:
        url: Of the service.
        answers: When each came, on the clock of `time.monotonic`, and how long it took, with all
            that it took to ask again.
        wrong: Answers that were not the forecast.
        again: Requests that were told to ask again.
        failed: What else came, by status or error.
    """

    url: str
    answers: list[tuple[float, float]] = field(default_factory=list)
    wrong: int = 0
    again: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def going(self) -> Iterator[None]:
        """Keep asking meanwhile."""
        over = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(over)))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def since(self, began: float) -> list[float]:
        """What answers took that came since then."""
        return sorted(took for came, took in [*self.answers] if came >= began)

    def pace(self, seconds: float) -> float:
        """Answers a second, over the last so many."""
        return len(self.since(time.monotonic() - seconds)) / seconds

    async def _run(self, over: threading.Event) -> None:
        numbers = itertools.count()
        limits = httpx.Limits(max_connections=_CALLERS)
        async with httpx.AsyncClient(timeout=_PATIENCE, limits=limits) as http:
            callers = (self._call(numbers, http, over) for _ in range(_CALLERS))
            await asyncio.gather(*callers)

    async def _call(
        self, numbers: Iterator[int], http: httpx.AsyncClient, over: threading.Event
    ) -> None:
        """One caller."""
        while not over.is_set():
            value = float(next(numbers) % 1_000_000)
            body = {"inputs": [{"series": [*range(7), value]}]}
            began = time.monotonic()
            while not self._take(value, await self._ask(http, body)):
                if over.is_set():
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
            ended = time.monotonic()
            self.answers.append((ended, ended - began))

    async def _ask(self, http: httpx.AsyncClient, body: object) -> httpx.Response | str:
        try:
            return await http.post(self.url, json=body)
        except httpx.TransportError as error:
            return type(error).__name__

    def _take(self, value: float, answer: httpx.Response | str) -> bool:
        """Whether this was an answer."""
        if isinstance(answer, str):
            self.failed[answer] += 1
            return False
        if answer.status_code == 200:
            forecast = answer.json()["outputs"][0]["content"][0]["mean_forecast"]
            self.wrong += forecast != [value] * 4
            return True
        if answer.status_code == 503 and "Retry-After" in answer.headers:
            self.again += 1
        else:
            self.failed[str(answer.status_code)] += 1
        return False


@contextmanager
def cluster_of_one() -> Iterator[Cluster]:
    """A cluster of a node with one CPU."""
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        own = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", CALLBACK: PATH}
        os.environ.update(own, RAY_USAGE_STATS_ENABLED="0")
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
            ray.init(address=cluster.address, log_to_driver=False)
            yield cluster
        finally:
            serve.shutdown()  # type: ignore[no-untyped-call]
            ray.shutdown()
            cluster.shutdown()  # type: ignore[no-untyped-call]


def deploy(models: Path, engines: int) -> None:
    """Serve from so many engines."""
    settings = Settings(models=models, max_batch=_BATCH, threads=1, log_level="error")
    plan = Plan(engines=(engines, engines), cpus_per_door=0)
    serve.run(application(settings, plan, WaitingRuntime), name="foretell", route_prefix="/")


def measured(load: Load, seconds: float) -> tuple[float, float]:
    """Answers a second, and the median of what they took, over so many seconds."""
    time.sleep(_WHOLE_SECONDS)
    began = time.monotonic()
    time.sleep(seconds)
    ranked = load.since(began)
    return len(ranked) / seconds, ranked[len(ranked) // 2]


def lose_a_node(load: Load, cluster: Cluster, before: float) -> float:
    """Kill a node and add another one: seconds until the pace is back."""
    began = time.monotonic()
    cluster.remove_node(max(cluster.worker_nodes, key=str), allow_graceful=False)
    cluster.add_node(num_cpus=1)
    # The pace is that of what has come since the node was lost, as soon as that can be told.
    time.sleep(_WHOLE_SECONDS)
    while load.pace(_WHOLE_SECONDS) < _WHOLE * before:
        if time.monotonic() - began > _PATIENCE:
            raise TimeoutError(f"not whole again within {_PATIENCE:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - began


def counted(load: Load, what: Callable[[], None]) -> tuple[str, ...]:
    """Do something under load: answers, those that were wrong, 503, and what failed otherwise."""
    load.wrong, load.again, load.failed = 0, 0, Counter()
    began = time.monotonic()
    what()
    print(f"failed: {dict(load.failed)}", flush=True)
    numbers = (len(load.since(began)), load.wrong, load.again, load.failed.total())
    return tuple(f"{number:,}" for number in numbers)


def take_an_engine_away(models: Path) -> None:
    """Serve from one engine, and go on for a moment."""
    deploy(models, 1)
    time.sleep(_WHOLE_SECONDS)


def bench(models: Path, cluster: Cluster, url: str, seconds: float) -> str:
    """The part of the page."""
    load = Load(f"{url}/forecast")
    rows, paces = [], []
    with load.going():
        for nodes in (1, 2):
            if nodes > 1:
                cluster.add_node(num_cpus=1)
                deploy(models, nodes)
            pace, median = measured(load, seconds)
            paces.append(pace)
            rows.append((f"{nodes}", f"{pace:.1f}", f"{median * 1e3:.0f} ms"))
            print(f"{nodes} nodes: {pace:.1f} forecasts a second", flush=True)
        load.wrong, load.again, load.failed = 0, 0, Counter()
        began = time.monotonic()
        whole = lose_a_node(load, cluster, paces[1])
        time.sleep(_WHOLE_SECONDS)
        print(f"whole again after {whole:.1f} s; failed: {dict(load.failed)}", flush=True)
        answered, wrong, again = len(load.since(began)), load.wrong, load.again
        failed = load.failed.total()
        fewer = counted(load, lambda: take_an_engine_away(models))
        ended = counted(load, lambda: drain(_GRACE_SECONDS))
    return _PART.format(
        milliseconds=BATCH_SECONDS * 1e3,
        batch=_BATCH,
        callers=_CALLERS,
        machine=machine("ray", "onnxruntime"),
        table=table(("nodes", "forecasts a second", "median"), rows),
        ratio=paces[1] / paces[0],
        lost=table(
            ("in the seconds around it", ""),
            (
                ("seconds until the pace was back at nine tenths", f"{whole:.0f}"),
                ("forecasts", f"{answered:,}"),
                ("wrong ones", f"{wrong}"),
                ("asked again after 503 with `Retry-After`", f"{again}"),
                ("failed in any other way", f"{failed}"),
            ),
        ),
        ended=table(
            ("under load", "forecasts", "wrong", "503 with `Retry-After`", "failed otherwise"),
            (("one engine less", *fewer), ("the end of the server", *ended)),
        ).rstrip(),
    )


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder, cluster_of_one() as cluster:
        write_bundle(Path(folder), Spec())
        port = free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        deploy(Path(folder), 1)
        seconds = 3.0 if quick else 30.0
        part = bench(Path(folder), cluster, f"http://127.0.0.1:{port}", seconds)
    if quick:
        print(part)
    else:
        write_part("ray", part, PAGE.with_name("ray.md"))


if __name__ == "__main__":
    main()
