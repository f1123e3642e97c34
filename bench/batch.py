"""The part of docs/batch.md with numbers: `python -m bench.batch`.

Forecasts a million series on all cores next to the bare loop of onnxruntime, kills the command
three times, and lets a cluster of Ray of two nodes do the same as one of one node. `--series` takes
fewer, `--only` one of both parts, `--print` does not write the page.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import dataset, parquet

from bench.page import PAGE, machine, table, write_part
from foretell.batch.forecaster import Forecaster
from foretell.batch.prepare import Task
from foretell.batch.run import forecast_table
from foretell.bundle.layout import FORECAST_GRAPH
from foretell.service.engine.limits import usable_cpus
from foretell.service.engine.runtime import Runtime
from foretell.service.forecast.requests import ForecastOptions

SERIES, CHECKED, RAY_SERIES = 1_000_000, 10_000, 1_000_000
CONTEXT, HORIZON = 336, 96
_PER_FILE, _PER_GROUP = 30_000, 3_000
_ROUNDS, _KILLS = 3, 3
_PART = Path("forecasts") / "part-*.parquet"
_TEXT = """\
## Measured

`make bench-batch` wrote this part. {series:,} series of {context} rows, made of windows of {source}
with a scale and noise of their own, in Parquet files of {size:.1f} GB together; a PatchTST of one
channel, 16 features and 3 layers forecasts {horizon} steps of each.

{machine}

{rows}
The loop runs the same graph on as many windows that lie in memory, in as many processes with one
thread each, by batches of the size that the command takes, and does nothing else. Both ran {rounds}
times, in turn; these are the medians. Memory is the sum of what all processes of the command have
resident, the most of samples twice a second; what they share counts several times.
{killed}
"""
_KILLED = """\

Killed {kills} times at random and started again, the command had forecast all {series:,} series
once; the forecasts of the first {checked:,} were, row by row, those of a run of these alone that
nobody disturbed.
"""
_RAY_TEXT = """\
### On Ray

{series:,} of these series on `ray.cluster_utils.Cluster`, nodes of one CPU each on this machine, to
which all their processes are bound, the cluster's head and the command to that of the first; with
the time that actors take to start:

{rows}
One of two nodes killed while both were at work: all {series:,} series forecast, none twice, in
{lost:.0f} s.
"""


def write_table(folder: Path, count: int, rows: NDArray[np.float64]) -> None:
    """Write so many series: windows of rows, scaled and with noise."""
    windows = np.lib.stride_tricks.sliding_window_view(rows, CONTEXT)
    times = np.datetime64("2024-01-01", "us") + np.timedelta64(1, "h") * np.arange(CONTEXT)
    folder.mkdir()
    for first in range(0, count, _PER_FILE):
        writer = None
        for start in range(first, min(first + _PER_FILE, count), _PER_GROUP):
            size = min(_PER_GROUP, count - start, first + _PER_FILE - start)
            # By itself, so that fewer series are the first ones of more.
            generator = np.random.default_rng(start)
            values = windows[generator.integers(0, len(windows), _PER_GROUP)]
            values = values * generator.uniform(0.5, 2, (_PER_GROUP, 1))
            values = (values + generator.normal(0, 0.1, values.shape))[:size]
            names = pa.array([f"series-{number:07d}" for number in range(start, start + size)])
            places = np.repeat(np.arange(size, dtype=np.int32), CONTEXT)
            found = pa.table(
                {
                    "unique_id": pa.DictionaryArray.from_arrays(places, names),
                    "ds": np.tile(times, size),
                    "y": values.ravel(),
                }
            )
            if writer is None:
                path = folder / f"rows-{first // _PER_FILE:03d}.parquet"
                writer = parquet.ParquetWriter(
                    path, found.schema, use_dictionary=["unique_id", "ds"]
                )
            writer.write_table(found)
        if writer is not None:
            writer.close()


def loop(bundle: Path, count: int) -> float:
    """Seconds that onnxruntime takes for so many windows, on all cores.

    Raises:
        SystemExit: one of its processes has failed.
    """
    workers = usable_cpus()
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(workers), context.SimpleQueue()
    children = [
        context.Process(target=_loop, args=(bundle, count // workers, barrier, queue))
        for _ in range(workers)
    ]
    for child in children:
        child.start()
    try:
        left = {child.sentinel: child for child in children}
        while left:
            for ended in connection.wait(left):
                child = left.pop(ended)
                child.join()
                if child.exitcode:
                    raise SystemExit(f"a process of the loop ended with {child.exitcode}")
    finally:
        # They would wait for it at the barrier.
        for child in children:
            child.kill()
            child.join()
    return max(queue.get() for _ in children)


def _loop(bundle: Path, count: int, barrier: Barrier, queue: SimpleQueue[float]) -> None:
    forecaster = Forecaster(bundle, ForecastOptions(), "cpu")
    model = forecaster.model
    session = Runtime("cpu").open(bundle / FORECAST_GRAPH)
    windows = np.random.default_rng(0).normal(size=(1024, CONTEXT, 1)).astype(np.float32)
    batches = np.array_split(windows, len(windows) // model.max_batch)
    barrier.wait()
    began, done = time.perf_counter(), 0
    while done < count:
        batch = batches[done // model.max_batch % len(batches)]
        session.run({"history": batch})
        done += len(batch)
    queue.put(time.perf_counter() - began)
    forecaster.close()


class Peak:
    """The most memory that a process and its children have resident at a time.

    Attributes:
        mib: So far.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.mib = 0.0
        Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                every = [self._process, *self._process.children(recursive=True)]
                resident = sum(each.memory_info().rss for each in every)
            except psutil.Error:
                if not self._process.is_running() or self._process.status() == "zombie":
                    return
                continue
            self.mib = max(self.mib, resident / 2**20)
            time.sleep(0.5)


def command(source: Path, target: Path, bundle: Path) -> subprocess.Popen[bytes]:
    """The command, begun."""
    words = [sys.executable, "-m", "foretell", "batch", source, target, "--model", bundle]
    return subprocess.Popen([*words, "--device", "cpu"], stdout=subprocess.DEVNULL)


def whole(source: Path, target: Path, bundle: Path) -> tuple[float, float]:
    """Seconds and MiB of a run."""
    began = time.perf_counter()
    child = command(source, target, bundle)
    peak = Peak(child.pid)
    if child.wait():
        raise SystemExit("foretell batch failed")
    return time.perf_counter() - began, peak.mib


def killed(source: Path, target: Path, bundle: Path, seconds: float) -> int:
    """Run to the end, killed at random; returns how often."""
    chance, kills = random.Random(0), 0
    while True:
        child = command(source, target, bundle)
        try:
            child.wait(chance.uniform(0.15, 0.3) * seconds if kills < _KILLS else None)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            kills += 1
            print(f"killed, {len(list(target.glob(str(_PART))))} parts done", flush=True)
            continue
        if child.returncode:
            raise SystemExit("foretell batch failed")
        return kills


def check(target: Path, count: int) -> None:
    """Make sure that every series is forecast once.

    Raises:
        SystemExit: it is not.
    """
    found = dataset.dataset(target / "forecasts")
    if found.count_rows() != count * HORIZON:
        raise SystemExit(f"{target}: {found.count_rows()} rows")
    names = found.to_table(["unique_id"], filter=pc.field("step") == 1)["unique_id"]
    if len(pc.unique(names)) != count:
        raise SystemExit(f"{target}: {len(pc.unique(names))} series")


def check_same(target: Path, other: Path) -> None:
    """Make sure that forecasts are those of another run, of fewer series.

    Raises:
        SystemExit: they are not.
    """
    order = [("unique_id", "ascending"), ("step", "ascending")]
    few = dataset.dataset(other / "forecasts").to_table().sort_by(order)
    last = pc.max(few["unique_id"])
    many = dataset.dataset(target / "forecasts").to_table(filter=pc.field("unique_id") <= last)
    if not many.sort_by(order).equals(few):
        raise SystemExit(f"{target} and {other} differ")


@contextmanager
def cluster(nodes: int) -> Iterator[Any]:
    """A cluster of so many nodes with one CPU each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray.cluster_utils import Cluster
    before = os.sched_getaffinity(0)
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(
        prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        os.environ.update(RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
        made = Cluster()
        memory = 100 * 1024 * 1024
        try:
            # What has the driver has no CPU: it is not the one that is lost.
            made.add_node(num_cpus=0, include_dashboard=False, object_store_memory=memory)
            _bind(psutil.Process(), {0})
            for number in range(nodes):
                node = made.add_node(num_cpus=1, object_store_memory=memory)
                for started in (each for every in node.all_processes.values() for each in every):
                    _bind(psutil.Process(started.process.pid), {number})
            ray.init(address=made.address, log_to_driver=False, logging_level="error")
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
            _bind(psutil.Process(), before)


def _bind(process: psutil.Process, cpus: set[int]) -> None:
    """Have a process and all that it started run on these CPUs, and what they start likewise."""
    for each in (process, *process.children(recursive=True)):
        for thread in each.threads():
            os.sched_setaffinity(thread.id, cpus)


class _Losing:
    """Kills a node after a quarter of the rows."""

    def __init__(self, made: Any) -> None:  # noqa: ANN401
        self._cluster = made

    def __call__(self, done: int, rows: int) -> None:
        if done >= rows // 4 and self._cluster is not None:
            self._cluster.remove_node(
                max(self._cluster.worker_nodes, key=str), allow_graceful=False
            )
            self._cluster = None


def on_ray(source: Path, target: Path, bundle: Path, nodes: int, *, lose: bool = False) -> float:
    """Seconds of a run on a cluster of so many nodes."""
    from foretell.batch.on_ray import run_parts

    with cluster(nodes) as made:
        task = Task(str(source), str(target), bundle, device="cpu")
        began = time.perf_counter()
        forecast_table(
            task,
            lambda work, parts: run_parts(work, parts, None, "auto"),
            _Losing(made if lose else None),
            workers=nodes,
        )
        return time.perf_counter() - began


def prepare_model(folder: Path) -> Path:
    """The bundle; weights have no influence on the time."""
    from foretell.export.write import export_checkpoint
    from foretell.models.architectures.patchtst import PatchTSTConfig
    from foretell.models.checkpoint import CheckpointInfo, save

    sizes: dict[str, Any] = {"d_model": 16, "heads": 4, "d_ff": 128, "encoder_layers": 3}
    config = PatchTSTConfig(channels=1, context=CONTEXT, horizon=HORIZON, **sizes)
    scaler = {"mean": (0.0,), "std": (1.0,)}
    info = CheckpointInfo.model_validate(
        {"config": config, "channels": ("y",), "frequency": "h", "scaler": scaler}
    )
    save(folder / "checkpoint", config.build().eval(), info)
    return export_checkpoint(folder / "checkpoint", folder / "repository")


def processes(folder: Path, bundle: Path, count: int) -> tuple[str, str]:
    """The table about processes, and what is told of those that were killed."""
    source, few = folder / "table", folder / "few"
    every: list[tuple[float, float, float]] = []
    for number in range(_ROUNDS):
        target = folder / f"whole-{number}"
        every.append((loop(bundle, count), *whole(source, target, bundle)))
        print("loop {:.1f} s, whole {:.1f} s, {:.0f} MiB".format(*every[-1]), flush=True)
        check(target, count)
        shutil.rmtree(target)
    bare, seconds, _ = np.median(every, axis=0).tolist()
    mib = max(peak for *_, peak in every)
    kills = killed(source, folder / "killed", bundle, seconds)
    check(folder / "killed", count)
    whole(few, folder / "undisturbed", bundle)
    check_same(folder / "killed", folder / "undisturbed")
    rows = [
        ("onnxruntime's loop", f"{bare:.1f}", f"{count / bare:,.0f}", "1.00", ""),
        (
            "`foretell batch`",
            f"{seconds:.1f}",
            f"{count / seconds:,.0f}",
            f"{seconds / bare:.2f}",
            f"{mib:,.0f}",
        ),
    ]
    told = _KILLED.format(kills=kills, series=count, checked=min(CHECKED, count))
    return table(("", "s", "series/s", "times the loop", "peak MiB"), rows), told


def nodes(folder: Path, bundle: Path) -> str:
    """The part about Ray."""
    source = folder / "ray"
    seconds = {count: on_ray(source, folder / f"ray-{count}", bundle, count) for count in (1, 2)}
    print(f"Ray {seconds}", flush=True)
    lost = on_ray(source, folder / "ray-lost", bundle, 2, lose=True)
    total = len(pc.unique(dataset.dataset(source).to_table(["unique_id"])["unique_id"]))
    for name in ("ray-1", "ray-2", "ray-lost"):
        check(folder / name, total)
    rows = [
        (f"{count}", f"{each:.1f}", f"{total / each:,.0f}", f"{seconds[1] / each:.2f}")
        for count, each in seconds.items()
    ]
    told = table(("nodes", "s", "series/s", "times one node"), rows)
    return _RAY_TEXT.format(series=total, rows=told, lost=lost)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.batch", description=__doc__)
    options.add_argument("--series", type=int, default=SERIES)
    options.add_argument("--ray-series", type=int, default=RAY_SERIES)
    options.add_argument("--data", type=Path, required=True, help="ETTh1.csv of the ETT data sets")
    options.add_argument("--only", choices=["processes", "ray"])
    options.add_argument("--print", action="store_true", help="do not write the page")
    given = options.parse_args()
    rows = pd.read_csv(given.data)["OT"].to_numpy()
    with tempfile.TemporaryDirectory(prefix="foretell-batch-") as name:
        folder = Path(name)
        bundle = prepare_model(folder)
        if given.only != "ray":
            write_table(folder / "table", given.series, rows)
            write_table(folder / "few", min(CHECKED, given.series), rows)
            size = sum(path.stat().st_size for path in (folder / "table").iterdir())
            print(f"table of {size / 1e9:.1f} GB", flush=True)
            measured, told = processes(folder, bundle, given.series)
            text = _TEXT.format(
                series=given.series,
                context=CONTEXT,
                horizon=HORIZON,
                source=f"{given.data.stem}'s OT",
                size=size / 1e9,
                machine=machine("pyarrow", "onnxruntime"),
                rows=measured,
                killed=told,
                rounds=_ROUNDS,
            )
            tell("batch", text, is_written=not given.print)
        if given.only != "processes":
            write_table(folder / "ray", given.ray_series, rows)
            tell("batch-ray", nodes(folder, bundle), is_written=not given.print)


def tell(part: str, text: str, *, is_written: bool) -> None:
    """Print a part of the page, and write it there."""
    print(text)
    if is_written:
        write_part(part, text, PAGE.with_name("batch.md"))


if __name__ == "__main__":
    main()
