"""Draw docs/dashboard.png: what the dashboard shows of a server that is asked for forecasts.

`python -m bench.dashboard` serves the demo's models (`make demo`) by two HTTP workers and on
demand, sends requests for two minutes and lets Debian's `prometheus` scrape. Grafana itself is not
needed, and is not what draws: queries, layout, units and limits are the dashboard's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from PIL import Image

from bench.drawing import Series, draw
from bench.panels import DASHBOARD, expressions
from bench.prometheus import Prometheus
from tests.support.process import Server
from tests.support.waiting import until

# How many callers there are in each part of the time, and series in what one of them sends.
_PARTS = ((4, 1), (24, 1), (6, 64), (12, 8), (4, 1))
_KINDS = {"forecast": 85, "backtest": 10, "unknown": 2, "short": 3}
_WINDOW = "15s"
_TIMEOUT_SECONDS = 60
# Of the picture: it has few, and takes a third of the bytes with no more.
_COLOURS = 128


def bodies(example: dict[str, Any], count: int) -> dict[str, tuple[str, bytes]]:
    """Path and body of a request of each kind, of so many series.

    Args:
        example: A window of the model and what followed, as `GET /models/{model}/example` has it.
        count: Series in a forecast.
    """
    model, [entry] = example["model"], example["request"]["inputs"]
    entry = {**entry, "start_timestamp": entry["timestamps"][0]}
    del entry["timestamps"]
    known = {**entry, "series": [*entry["series"], *example["actual"]]}
    options = {"quantiles": [0.1, 0.9]}
    return {
        kind: (path, orjson.dumps(body))
        for kind, path, body in (
            ("forecast", "/forecast", {"model": model, "inputs": [entry] * count}),
            ("backtest", "/backtest", {"model": model, "inputs": [known], "options": options}),
            ("unknown", "/forecast", {"model": "unknown", "inputs": [entry]}),
            ("short", "/forecast", {"model": model, "inputs": [{**entry, "series": []}]}),
        )
    }


def load(url: str, seconds: float) -> None:
    """Send requests of all kinds for some time."""
    names = [model["name"] for model in httpx.get(f"{url}/models").json()]
    examples = [httpx.get(f"{url}/models/{name}/example").json() for name in names]

    async def call(client: httpx.AsyncClient, count: int, end: float) -> None:
        of_models = [bodies(example, count) for example in examples]
        while time.monotonic() < end:
            [kind] = random.choices([*_KINDS], [*_KINDS.values()])
            path, body = random.choice(of_models)[kind]
            await client.post(path, content=body, headers={"Content-Type": "application/json"})

    async def all_parts() -> None:
        limits, timeout = httpx.Limits(max_connections=None), httpx.Timeout(_TIMEOUT_SECONDS)
        async with httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits) as client:
            for callers, count in _PARTS:
                end = time.monotonic() + seconds / len(_PARTS)
                await asyncio.gather(*(call(client, count, end) for _ in range(callers)))

    asyncio.run(all_parts())


def answers(ask: Callable[..., Any], panel: dict[str, Any], start: float) -> list[Series]:
    """What the queries of a panel have told since then; `ask` is Prometheus'."""
    found: list[Series] = []
    asked = expressions(panel, _WINDOW)
    for target, expression in zip(panel["targets"], asked, strict=True):
        reply = ask("query_range", query=expression, start=start, end=time.time(), step=1)
        for series in reply["result"]:
            labels = series["metric"]
            points = np.array(series["values"], float)
            found.append(Series(_label(target, labels), labels, points[:, 0] - start, points[:, 1]))
    seconds = np.unique(np.concatenate([series.seconds for series in found] or [np.zeros(0)]))
    return [_spread(series, seconds) for series in found]


def _label(target: dict[str, Any], labels: dict[str, str]) -> str:
    """What the legend calls a series."""
    form = target.get("legendFormat", "")
    return re.sub(r"{{(\w+)}}", lambda name: labels.get(name[1], ""), form)


def _spread(series: Series, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> Series:
    """The same with NaN at moments that only others have."""
    values = np.full(len(seconds), np.nan)
    values[np.searchsorted(seconds, series.seconds)] = series.values
    return series._replace(seconds=seconds, values=values)


def main() -> None:
    """Serve, ask and draw."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("models", nargs="?", type=Path, default=Path(".demo/repository"))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--to", type=Path, default=Path("docs/dashboard.png"))
    given = parser.parse_args()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        with (
            Server(
                given.models.resolve(), log, workers=2, versions="latest", load="on-demand"
            ) as server,
            Prometheus(server.url, folder, interval="1s", pending="1m") as prometheus,
        ):
            # The first requests load the models, which shows next to what was before.
            until(lambda: bool(prometheus.values("foretell_ready")))
            start = time.time()
            load(server.url, given.seconds)
            found = {
                panel["title"]: answers(prometheus.ask, panel, start)
                for panel in panels
                if panel["type"] != "row"
            }
    draw(panels, found, given.to)
    Image.open(given.to).quantize(_COLOURS).save(given.to, optimize=True)


if __name__ == "__main__":
    main()
