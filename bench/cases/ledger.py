"""The ledger: what it costs a server, its memory, and the time to score a million forecasts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil

from bench.harness import Result, Row, Run, Tables, in_turns, ratio
from bench.models import NAME, SIZES, Subject, prepare
from bench.servers import Load, load, memory, metrics, middle
from bench.servers import ours as serve
from foretell.bundle import manifest
from foretell.service.arrays import FORECAST, HISTORY, MOMENTS, Arrays
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.ipc import Remember
from foretell.service.ledger.ids import Ids
from foretell.service.ledger.keeping import Record, keep
from foretell.service.ledger.observing import Observed, observe
from foretell.service.ledger.reading import Selection, accuracy
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import add_up
from foretell.service.ledger.totals import refresh
from tests.support.bundles import Spec, write_bundle
from tests.support.postgresql import Server, find_binaries, postgresql

_CONNECTIONS = 64
_SECONDS = 12
# The least ratio of requests a second with a ledger to those without.
_LEAST_RATE = 0.95
_MOST_SECONDS = 2.0
_HOUR = 3_600_000_000
_STEPS = 24


class Turn(NamedTuple):
    """A load, and the microseconds of CPU that the server took for each request."""

    load: Load
    microseconds: float


def measure(run: Run) -> Result:
    """Run the wanted parts: `rate`, `memory`, `million`."""
    tables: Tables = {}
    failures: list[str] = []
    for name, part in (("rate", rates), ("memory", memories), ("million", million)):
        if run.wants(name):
            tables[name], missed = part(run)
            failures += missed
    return Result(tables, failures)


def rates(run: Run) -> tuple[list[Row], list[str]]:
    """Requests a second without a ledger, with SQLite and with PostgreSQL, in turns."""
    subject = prepare(SIZES[0], run.folder / "subject", NAME)
    body = _write_body(subject, run.folder / "body.json")
    with ExitStack() as stack:
        ledgers = {"no ledger": None, "SQLite": f"sqlite:///{run.folder / 'rate.db'}"}
        if find_binaries() is not None:
            server: Server = stack.enter_context(postgresql())
            ledgers["PostgreSQL"] = server.url
        loaders: list[Callable[[int], Turn]] = []
        ports = []
        for name, url in ledgers.items():
            settings = {} if url is None else {"ledger": url}
            folder = run.folder / name.replace(" ", "-")
            process, port = stack.enter_context(serve(subject.repository, folder, **settings))
            ports.append(port)
            loaders.append(partial(_turn, process, port, body))
            loaders[-1](1)
        found = in_turns(loaders, run.duration(_SECONDS, 1))
        rows: list[Row] = []
        failures = []
        plain = [turn.load.rate for turn in found[0]]
        for name, turns, port in zip(ledgers, found, ports, strict=True):
            typical = middle(turn.load for turn in turns)
            of_plain = ratio([turn.load.rate for turn in turns], plain)
            row: dict[str, str | int | float] = {
                "ledger": name,
                "req/s": round(typical.rate),
                "of none": round(of_plain, 3),
                "CPU, µs": round(median(turn.microseconds for turn in turns)),
                "p99, ms": 1e3 * typical.p99,
                "failed": sum(turn.load.failed for turn in turns),
            }
            if name != "no ledger":
                kept, dropped = metrics(
                    port,
                    'foretell_ledger_forecasts_total{outcome="kept"}',
                    'foretell_ledger_forecasts_total{outcome="dropped"}',
                )
                row |= {"kept": round(kept), "dropped": round(dropped)}
                if of_plain < _LEAST_RATE:
                    failures.append(f"{name}: {of_plain:.3f} of the rate without a ledger")
            rows.append(row)
            print("  ", row, flush=True)
        return rows, failures


def _turn(process: psutil.Process, port: int, body: Path, seconds: int) -> Turn:
    """Load a server."""

    def spent() -> float:
        times = process.cpu_times()
        return times.user + times.system

    before = spent()
    found = load(f"http://127.0.0.1:{port}/forecast", body, _CONNECTIONS, seconds)
    return Turn(found, 1e6 * (spent() - before) / max(1.0, found.rate * seconds))


def memories(run: Run) -> tuple[list[Row], list[str]]:
    """Memory of a server over 100,000 kept forecasts."""
    every = run.pick(100_000, 500)
    subject = prepare(SIZES[0], run.folder / "memory-subject", NAME)
    body = _write_body(subject, run.folder / "memory.json")
    url = f"sqlite:///{run.folder / 'memory.db'}"
    rows: list[Row] = []
    with serve(subject.repository, run.folder / "memory", ledger=url) as (process, port):
        address = f"http://127.0.0.1:{port}/forecast"
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            while _kept(port) < share * every:
                load(address, body, _CONNECTIONS, 5 if every > 1000 else 1)
            rows.append(_memory(process, port))
            print("  ", rows[-1], flush=True)
    return rows, []


def _memory(process: psutil.Process, port: int) -> Row:
    return {"forecasts kept": round(_kept(port)), "memory, MiB": memory(process)}


def _kept(port: int) -> float:
    [kept] = metrics(port, 'foretell_ledger_forecasts_total{outcome="kept"}')
    return kept


def _write_body(subject: Subject, path: Path) -> Path:
    """A request of a thousand series in turn, each an hour later every time (`load.lua`)."""
    values = subject.windows[0].astype(float).round(3)
    one = {
        "name": "series-@SERIES@",
        "start_timestamp": "@START@",
        "series": values.tolist(),
    }
    path.write_text(json.dumps({"inputs": [one]}, separators=(",", ":")))
    return path


def million(run: Run) -> tuple[list[Row], list[str]]:
    """A million forecasts of 24 steps and one channel in SQLite, and the time to score them."""
    count = run.pick(1000, 20)
    repository = run.folder / "million"
    write_bundle(repository, Spec(name="million", horizon=_STEPS, context=48, calibrated=1))
    described = manifest.read(repository / "million" / "1")
    intervals = Intervals(described, None)
    store = Store(f"sqlite:///{run.folder / 'million.db'}")
    store.open()
    ids = Ids(store)
    rng = np.random.default_rng(0)
    written = scored = 0.0
    for number in range(count):
        name = f"series-{number}"
        truth = rng.normal(size=count + 48 + _STEPS)
        message = Remember(
            "million", "1", "digest", "", "forecast", "stored", (), [name] * count, [*range(count)]
        )
        windows = np.lib.stride_tricks.sliding_window_view(truth, 48 + _STEPS)[:count]
        arrays: Arrays = {
            HISTORY: windows[:, :48, None].astype(np.float32),
            FORECAST: windows[:, 48:, None].astype(np.float32) + np.float32(0.1),
            MOMENTS: (np.arange(count)[:, None] + np.arange(48 + _STEPS)) * _HOUR,
        }
        began = time.perf_counter()
        with store.write() as connection:
            keep(connection, store, ids, [Record(message, arrays, described, intervals)])
        written += time.perf_counter() - began
        began = time.perf_counter()
        with store.write() as connection:
            times = np.arange(len(truth)) * _HOUR
            one = Observed(("", name, "h"), ["load"], times, truth[:, None])
            days, _ = observe(connection, store, ids, [one])
            add_up(connection, store, days)
        scored += time.perf_counter() - began
    rows: list[Row] = [
        {"what": f"write {count * count:,} forecasts", "seconds": written},
        {"what": "write their actual values, and add up", "seconds": scored},
    ]
    failures = []
    for what, by in (
        ("score by step, no totals yet", "step"),
        ("add up all totals", ""),
        ("score by step", "step"),
        ("score by series", "series"),
        ("score by day", "day"),
    ):
        began = time.perf_counter()
        if by:
            with store.read() as connection:
                found = accuracy(connection, Selection("million"), by)  # type: ignore[arg-type]
            if not found:
                failures.append(f"{what}: no scores")
        else:
            more = True
            while more:
                with store.write() as connection:
                    more = refresh(connection, store, 100, 60.0)
        seconds = time.perf_counter() - began
        rows.append({"what": what, "seconds": seconds})
        print("  ", rows[-1], flush=True)
        if by == "step" and seconds > _MOST_SECONDS:
            failures.append(f"{what}: {seconds:.2f} s, not {_MOST_SECONDS:g}")
    store.close()
    return rows, failures
