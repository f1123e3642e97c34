"""`foretell batch` next to a bare loop of onnxruntime, killed and started again, and on Ray."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import dataset, parquet

from bench.harness import Result, Row, Run
from bench.models import Size, prepare
from foretell.bundle.layout import FORECAST_GRAPH
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.service.engine.limits import usable_cpus
from foretell.service.engine.runtime import Runtime

_CONTEXT, _HORIZON = 336, 96
_CONFIG = PatchTSTConfig(
    channels=1, context=_CONTEXT, horizon=_HORIZON, d_model=16, heads=4, d_ff=128, encoder_layers=3
)
_PER_FILE, _PER_GROUP, _LOOP_BATCH = 30_000, 3_000, 16
_ROUNDS, _KILLS = 3, 3


def measure(run: Run) -> Result:
    """Forecast a million series, made of windows of --data (ETTh1.csv), on all cores and on Ray."""
    count, checked = run.pick((1_000_000, 10_000), (600, 100))
    rows = pd.read_csv(run.data[0])["OT"].to_numpy() if run.data else _walk()
    source, few = run.folder / "table", run.folder / "few"
    _write_table(source, count, rows)
    _write_table(few, checked, rows)
    repository = prepare(Size("one channel", _CONFIG), run.folder / "model", "model").repository
    bundle = repository / "model" / "1"
    tables: dict[str, list[Row]] = {}
    if run.wants("processes"):
        tables["processes"] = _processes(run, source, few, bundle, count)
    if run.wants("ray"):
        tables["ray"] = _on_ray(run, source, bundle, count)
    return Result(dict(tables))


def _processes(run: Run, source: Path, few: Path, bundle: Path, count: int) -> list[Row]:
    found = []
    for number in range(run.pick(_ROUNDS, 1)):
        target = run.folder / f"whole-{number}"
        found.append((_loop(bundle / FORECAST_GRAPH, count), *_whole(source, target, bundle)))
        print("loop {:.1f} s, whole {:.1f} s, {:.0f} MiB".format(*found[-1]), flush=True)
        _check(target, count)
    bare, seconds, _ = np.median(found, axis=0).tolist()
    kills = _killed(source, run.folder / "killed", bundle, seconds)
    _check(run.folder / "killed", count)
    _whole(few, run.folder / "undisturbed", bundle)
    _check_same(run.folder / "killed", run.folder / "undisturbed")
    return [
        {"": "onnxruntime's loop", "s": bare, "series/s": round(count / bare)},
        {
            "": "`foretell batch`",
            "s": seconds,
            "series/s": round(count / seconds),
            "times the loop": seconds / bare,
            "peak, MiB": round(max(peak for *_, peak in found)),
            "killed and whole": f"{kills} times",
        },
    ]


def _walk() -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=5000).cumsum()


def _write_table(folder: Path, count: int, rows: NDArray[np.float64]) -> None:
    """Write `count` series: windows of rows, scaled and with noise."""
    windows = np.lib.stride_tricks.sliding_window_view(rows, _CONTEXT)
    times = np.datetime64("2024-01-01", "us") + np.timedelta64(1, "h") * np.arange(_CONTEXT)
    folder.mkdir()
    for first in range(0, count, _PER_GROUP):
        size = min(_PER_GROUP, count - first)
        # A generator for each group: a smaller table has the first series of a larger one.
        generator = np.random.default_rng(first)
        values = windows[generator.integers(0, len(windows), _PER_GROUP)]
        values = values * generator.uniform(0.5, 2, (_PER_GROUP, 1))
        values = (values + generator.normal(0, 0.1, values.shape))[:size]
        names = pa.array([f"series-{number:07d}" for number in range(first, first + size)])
        places = np.repeat(np.arange(size, dtype=np.int32), _CONTEXT)
        ids = pa.DictionaryArray.from_arrays(places, names)
        found = pa.table({"unique_id": ids, "ds": np.tile(times, size), "y": values.ravel()})
        if first % _PER_FILE == 0:
            path = folder / f"rows-{first // _PER_FILE:03d}.parquet"
            writer = parquet.ParquetWriter(path, found.schema, use_dictionary=["unique_id", "ds"])
        writer.write_table(found)
        if (first + _PER_GROUP) % _PER_FILE == 0 or first + size == count:
            writer.close()


def _loop(graph: Path, count: int) -> float:
    """Seconds that onnxruntime takes for `count` windows, on all cores."""
    workers, context = usable_cpus(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_open, initargs=(graph,)) as pool:
        list(pool.map(_run_windows, [_LOOP_BATCH] * workers))
        began = time.perf_counter()
        list(pool.map(_run_windows, [count // workers] * workers))
        return time.perf_counter() - began


def _open(graph: Path) -> None:
    global _session
    _session = Runtime("cpu").open(graph)


def _run_windows(count: int) -> None:
    shape = (_LOOP_BATCH, _CONTEXT, 1)
    windows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for _ in range(0, count, _LOOP_BATCH):
        _session.run({"history": windows})


def _command(source: Path, target: Path, bundle: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "foretell", "batch", source, target, "--model", bundle]
    return subprocess.Popen([*words, "--device", "cpu", *more], stdout=subprocess.DEVNULL)


def _whole(source: Path, target: Path, bundle: Path, *more: str) -> tuple[float, float]:
    """Seconds of a run, and the most MiB that all its processes had resident together."""
    began, peak = time.perf_counter(), 0
    child = _command(source, target, bundle, *more)
    while child.poll() is None:
        try:
            process = psutil.Process(child.pid)
            every = [process, *process.children(recursive=True)]
            peak = max(peak, sum(each.memory_info().rss for each in every))
        except psutil.Error:
            continue
        time.sleep(0.1)
    if child.returncode:
        raise RuntimeError("foretell batch failed")
    return time.perf_counter() - began, peak / 2**20


def _killed(source: Path, target: Path, bundle: Path, seconds: float) -> int:
    """Run to the end, killed at random; returns how often."""
    chance, kills = random.Random(0), 0
    while True:
        child = _command(source, target, bundle)
        try:
            child.wait(chance.uniform(0.15, 0.3) * seconds if kills < _KILLS else None)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            kills += 1
            continue
        if child.returncode:
            raise RuntimeError("foretell batch failed")
        return kills


def _check(target: Path, count: int) -> None:
    """Check that every series is forecast once."""
    found = dataset.dataset(target / "forecasts")
    names = found.to_table(["unique_id"], filter=pc.field("step") == 1)["unique_id"]
    if (found.count_rows(), len(pc.unique(names))) != (count * _HORIZON, count):
        raise RuntimeError(f"{target}: {found.count_rows()} rows, {len(pc.unique(names))} series")


def _check_same(target: Path, other: Path) -> None:
    """Check that forecasts equal those of another run of fewer series."""
    order = [("unique_id", "ascending"), ("step", "ascending")]
    few = dataset.dataset(other / "forecasts").to_table().sort_by(order)
    last = pc.max(few["unique_id"])
    many = dataset.dataset(target / "forecasts").to_table(filter=pc.field("unique_id") <= last)
    if not many.sort_by(order).equals(few):
        raise RuntimeError(f"{target} and {other} differ")


def _on_ray(run: Run, source: Path, bundle: Path, count: int) -> list[Row]:
    """Runs on one node, on two nodes, and on two nodes of which one is lost."""
    rows: list[dict[str, Any]] = []
    for what, nodes in (("one node", 1), ("two nodes", 2), ("two nodes, one of which is lost", 2)):
        target = run.folder / what.replace(" ", "-")
        with _cluster(nodes) as cluster:
            began = time.perf_counter()
            child = _command(source, target, bundle, "--ray", cluster.address)
            while child.poll() is None:
                parts = len(list(target.glob("forecasts/*.parquet")))
                if "lost" in what and parts and len(cluster.worker_nodes) > nodes:
                    lost = max(cluster.worker_nodes, key=str)
                    cluster.remove_node(lost, allow_graceful=False)
                time.sleep(0.1)
            seconds = time.perf_counter() - began
        if child.returncode:
            raise RuntimeError("foretell batch failed")
        _check(target, count)
        row = {"": what, "s": seconds, "series/s": round(count / seconds)}
        rows.append(row | {"times one node": rows[0]["s"] / seconds if rows else 1.0})
    return rows


@contextmanager
def _cluster(nodes: int) -> Iterator[Any]:
    """A cluster of nodes with one CPU each, to which all processes of a node are bound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster
    before, memory = os.sched_getaffinity(0), 100 * 1024 * 1024
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        os.environ.update(RAY_TMPDIR=name, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
        cluster = Cluster()
        try:
            # The node of the driver has no CPU, and is never the one that is lost.
            cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=memory)
            _bind(psutil.Process(), {0})
            for number in range(nodes):
                node = cluster.add_node(num_cpus=1, object_store_memory=memory)
                for started in (each for every in node.all_processes.values() for each in every):
                    _bind(psutil.Process(started.process.pid), {number})
            yield cluster
        finally:
            cluster.shutdown()
            _bind(psutil.Process(), before)


def _bind(process: psutil.Process, cpus: set[int]) -> None:
    for each in (process, *process.children(recursive=True)):
        for thread in each.threads():
            os.sched_setaffinity(thread.id, cpus)
