"""ETTh2, hour by hour through a server: what intervals hold with stored and learning offsets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bench.harness import KEPT, Result, Row, Run
from bench.in_process import InProcess
from bench.replay import (
    INTERVALS,
    LEVELS,
    SERIES,
    Floats,
    Replay,
    Table,
    difference,
    replay,
    scores,
)
from foretell.bundle import calibration
from foretell.bundle.calibration import Calibration
from foretell.bundle.manifest import read as read_manifest
from foretell.service.engine.intervals import Intervals
from foretell.service.ledger.adaptive import learn
from tests.support.bundles import Spec, write_bundle

MODEL = "etth2"
# The published split: a year of training, four months of validation, four of test.
_TRAIN = (
    *("train", "--arch", "transformer", "--context", "96", "--horizon", "24", "--channels", "OT"),
    *("--splits", "ett-hourly", "--epochs", "6", "--set", "batch_size=128", "--device", "cpu"),
)
_TEST, _END = 11520, 14400
# Numbers of origins to learn from.
_KNOWN = (0, 6, 12, 24, 48, 96, 168, 300)
_DAY = 24
# Lowest and highest coverage, in percent, by interval.
_ALLOWED = {"0.8": (77.0, 83.0), "0.95": (93.0, 97.0)}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Subject:
    """A model in a repository, and the table to replay."""

    repository: Path
    table: Table
    origins: int

    @property
    def bundle(self) -> Path:
        return self.repository / MODEL / "1"


def measure(run: Run) -> Result:
    """Replay the test months of ETTh2.csv in --data FOLDER; trains first, and keeps the model."""
    subject = _small(run.folder) if run.quick else _trained(run.data[0] / "ETTh2.csv")
    done, apart = _replayed(subject, run.folder / "ledger.db")
    manifest = read_manifest(subject.bundle)
    intervals = Intervals(manifest, calibration.read(subject.bundle, manifest))
    assert intervals.calibration is not None
    errors, scales = _scaled_errors(done, manifest.context, intervals)
    known = run.pick(_KNOWN, (0, 8))
    tables = {
        "intervals": _intervals(done),
        "weeks": _weeks(done),
        "steps": _steps(done),
        "learning": learning(errors, scales, intervals.calibration, known),
    }
    return Result(dict(tables), [*_judged(done, apart, is_whole=not run.quick)])


def _replayed(subject: _Subject, database: Path) -> tuple[Replay, float]:
    """A replay, and how far the scores of the server are from those of pandas."""
    manifest = read_manifest(subject.bundle)
    with InProcess(subject.repository, database) as server:
        sizes = manifest.context, manifest.horizon, subject.origins
        done = replay(server, MODEL, subject.table, sizes)
        return done, difference(server, MODEL, done)


def _judged(done: Replay, apart: float, *, is_whole: bool) -> Iterator[str]:
    """The faults of a replay."""
    if not apart <= _ROUNDING:
        yield f"the server's scores are {apart:.1e} from those of pandas"
    for name, (low, high) in _ALLOWED.items() if is_whole else ():
        held = 100 * scores(done.frame("ledger"), "total").iloc[0][f"coverage {name}"]
        if not low <= held <= high:
            yield f"learning intervals of {name} hold {held:.1f}%"


def _intervals(done: Replay) -> list[Row]:
    """Coverage in percent and mean width, over all and at the step that is furthest off."""
    rows: list[Row] = []
    for name in INTERVALS:
        for kind in SERIES:
            frame = done.frame(kind)
            whole, steps = scores(frame, "total").iloc[0], scores(frame, "step")
            held = 100 * steps[f"coverage {name}"]
            worst = (held - 100 * float(name)).abs().idxmax()
            rows.append(
                {
                    "interval": _percent(name),
                    "calibration": f"`{kind}`",
                    "holds, %": float(100 * whole[f"coverage {name}"]),
                    "worst step": int(worst),
                    "holds there, %": float(held[worst]),
                    "mean width": float(whole[f"width {name}"]),
                }
            )
    return rows


def _percent(name: str) -> str:
    return f"{float(name):.0%}"


def _grouped(done: Replay, group: str, labels: pd.Series) -> list[Row]:
    """Coverage in percent and mean width by labels of forecast values."""
    found = {kind: scores(done.frame(kind).assign(**{group: labels}), group) for kind in SERIES}
    rows: list[Row] = []
    for label in found["ledger"].index:
        row: dict[str, str | float] = {group: str(label)}
        for name in INTERVALS:
            for kind, each in found.items():
                row[f"{_percent(name)}, {kind}"] = float(100 * each.loc[label, f"coverage {name}"])
        for name in INTERVALS:
            for kind, each in found.items():
                row[f"width of {_percent(name)}, {kind}"] = float(each.loc[label, f"width {name}"])
        rows.append(row)
    return rows


def _weeks(done: Replay) -> list[Row]:
    """By the week of the origin."""
    origin = done.frame("ledger")["origin"]
    first = done.table.times[done.rows[origin // (7 * 24) * (7 * 24)]]
    return _grouped(done, "week from", pd.Series(first.astype("datetime64[D]").astype(str)))


def _steps(done: Replay) -> list[Row]:
    return _grouped(done, "step", done.frame("ledger")["step"].astype(int))


def learning(
    errors: Floats, scales: Floats, stored: Calibration, known: Sequence[int]
) -> list[Row]:
    """Coverage by the number of origins to learn from, with stored and halved intervals.

    All numbers of origins are judged on the same days: the forecasts of each day have intervals
    from the origins before it. Nothing is learned with 0.

    Args:
        errors: `[origins, steps]`, in units of the scales.
        scales: `[origins]`.
        known: Numbers of origins.
    """
    half = Calibration(stored.levels, stored.offsets / np.float32(2))
    rows: list[Row] = []
    for count in known:
        row: dict[str, int | float] = {"known origins": count}
        for name, prior in {"as stored": stored, "halved": half}.items():
            inside, width = [], []
            for day in range(max(known), len(errors) - _DAY + 1, _DAY):
                edges = _edges(errors[day - count : day], prior)
                coming, scale = errors[day : day + _DAY], scales[day : day + _DAY, None]
                pairs = [(edges[low], edges[high]) for low, high in INTERVALS.values()]
                inside.append([((low <= coming) & (coming <= high)).mean() for low, high in pairs])
                width.append([(scale * (high - low)).mean() for low, high in pairs])
            for label, share, size in zip(
                map(_percent, INTERVALS),
                np.mean(inside, axis=0),
                np.mean(width, axis=0),
                strict=True,
            ):
                row[f"{label}, {name}"] = float(100 * share)
                row[f"width of {label}, {name}"] = float(size)
        rows.append(row)
    return rows


def _edges(errors: Floats, prior: Calibration) -> Floats:
    """Offsets of `LEVELS` `[levels, steps]` at the hour after these origins."""
    count, steps = errors.shape
    if count:
        hours_ago = count - np.arange(count)
        is_hidden = np.arange(1, steps + 1) > hours_ago[:, None]
        known = np.where(is_hidden, np.nan, errors)[..., None]
        prior = learn(known, np.arange(count), prior).calibration
    return prior.at(np.array(LEVELS), steps)[:, :, 0]


def _scaled_errors(done: Replay, context: int, intervals: Intervals) -> tuple[Floats, Floats]:
    """Errors of a replay in units of the scales, and the scales."""
    target, steps = done.table.values[:, done.table.target], np.arange(done.mean.shape[1])
    histories = target[done.rows[:, None] + np.arange(-context, 0)].astype(np.float32)
    scales = intervals.scale(histories[..., None])[:, 0, 0]
    return (target[done.rows[:, None] + steps] - done.mean) / scales[:, None], scales


def _trained(data: Path) -> _Subject:
    """The Transformer that was trained for ETTh2; trained now if none is kept."""
    folder = KEPT / "replay"
    repository, checkpoint = folder / "models", folder / "checkpoint"
    foretell = [sys.executable, "-m", "foretell"]
    if not (repository / MODEL).exists():
        folder.mkdir(parents=True, exist_ok=True)
        train = [*foretell, *_TRAIN, "--data", data, "--out", checkpoint, "--overwrite"]
        export = [*foretell, "export", checkpoint, "--out", repository, "--name", MODEL]
        for command in (train, [*export, "--calibration-passes", "1"]):
            subprocess.run([str(part) for part in command], check=True)
    manifest = read_manifest(repository / MODEL / "1")
    frame = pd.read_csv(data, parse_dates=["date"])
    times = frame["date"].to_numpy().astype("datetime64[s]")
    values = frame[[*manifest.channels]].to_numpy(np.float64)
    target = manifest.channels.index("OT")
    return _Subject(
        repository, Table(times, values, target, _TEST), _END - _TEST - manifest.horizon + 1
    )


def _small(folder: Path) -> _Subject:
    """A model that needs no training, and a random walk."""
    write_bundle(folder / "models", Spec(name=MODEL, context=48, horizon=4, calibrated=1))
    rows = 100
    times = np.datetime64("2024-01-01T00:00:00") + np.timedelta64(1, "h") * np.arange(rows)
    values = np.random.default_rng(0).normal(size=(rows, 1)).cumsum(axis=0)
    return _Subject(folder / "models", Table(times, values, 0, 48), 40)
