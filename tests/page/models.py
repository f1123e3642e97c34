"""Small models with the names of the demo, and one with covariates; examples have daily cycles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.bundle import example
from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.results import Accuracy, TestResult
from foretell.bundle.scaler import Scaler
from tests.support.bundles import (
    Spec,
    channel_stage,
    cluster_stage,
    lag_stage,
    mapless_stage,
    rewrite_manifest,
    softmax_stage,
    write_bundle,
)

CHANNELS = ("temperature", "wind_speed")
# Two days, so that auto-correlation finds a lag of one day.
CONTEXT = 48
TEST = TestResult(
    windows=99,
    model=Accuracy(mse=0.5, mae=0.4),
    last_value=Accuracy(mse=1, mae=0.8),
    seasonal_naive=Accuracy(mse=0.4, mae=0.3),
    season=24,
)

SPECS = (
    Spec(
        name="patchtst",
        channels=CHANNELS,
        context=CONTEXT,
        horizon=12,
        stages=(softmax_stage(CONTEXT, channels=len(CHANNELS)),),
        calibrated=4,
    ),
    Spec(
        name="autoformer",
        channels=CHANNELS,
        context=CONTEXT,
        horizon=12,
        with_calendar=True,
        stages=(lag_stage(CONTEXT, name="encoder.0.self"),),
        calibrated=4,
    ),
    # The other forms of attention, without quantiles, and with another channel.
    Spec(
        name="forms",
        channels=(*CHANNELS, "pressure"),
        context=CONTEXT,
        horizon=12,
        stages=(channel_stage(3), cluster_stage(CONTEXT), mapless_stage(CONTEXT)),
    ),
)

# Every kind and type of covariates. A step's forecast grows with its price / 4, its opening * 0.625
# and the number of its sky.
SHOP = Spec(
    name="shop",
    channels=("sales", "visits", "staff=few", "staff=many", "sale"),
    targets=("sales",),
    context=24,
    horizon=6,
    covariates=Covariates(
        future=(
            Covariate(name="price", mean=10, std=2),
            Covariate(name="open", type="boolean"),
            Covariate(name="sky", type="category", categories=("clear", "rain", "snow")),
        ),
        past=(
            Covariate(name="staff", type="category", categories=("few", "many")),
            Covariate(name="sale", type="boolean"),
        ),
        static=(
            Covariate(name="region", type="category", categories=("north", "south"), other=True),
            Covariate(name="size", mean=2, std=1),
            Covariate(name="outdoors", type="boolean"),
        ),
    ),
    calibrated=1,
)


def write_models(repository: Path) -> Path:
    """Write all models; returns the repository."""
    _write_shop(repository)
    for spec in SPECS:
        levels = 10 * spec.scale
        scaler = Scaler(mean=tuple(levels.tolist()), std=(3.0,) * len(levels))
        ramp = replace(spec, example=CONTEXT, changes={"scaler": scaler, "test": TEST})
        folder = write_bundle(repository, ramp)
        _write_days(folder, ramp)
        rewrite_manifest(folder, ramp)
    return repository


def _write_days(folder: Path, spec: Spec) -> None:
    """Replace the example's rows with cycles of 24 steps."""
    steps = np.arange(CONTEXT + spec.horizon)[:, None]
    levels, phases = 10 * spec.scale, 3 * np.arange(len(spec.channels))
    rows = np.round(levels + 3 * np.sin((steps - phases) * 2 * np.pi / 24), 1)
    times = np.datetime64("2024-03-01T00:00:00") + steps[:CONTEXT, 0] * np.timedelta64(1, "h")
    days = example.Example(rows[:CONTEXT], times.astype(str), rows[CONTEXT:, spec.columns])
    example.write(folder, days)


def _write_shop(repository: Path) -> None:
    scaler = Scaler(mean=(200.0, 50.0, 0.5, 0.5, 0.5), std=(50.0, 9.0, 1.0, 1.0, 1.0))
    spec = replace(SHOP, example=SHOP.context, changes={"scaler": scaler})
    folder = write_bundle(repository, spec)
    steps = np.arange(spec.context + spec.horizon)
    sales = np.round(100 + 20 * np.sin(steps * 2 * np.pi / 24), 1)
    many = steps % 24 > 12
    rows = np.stack([sales, np.round(sales / 2), ~many, many, steps % 5 == 0], axis=1)
    future = np.stack([10 + steps % 3, steps % 24 > 6, steps // 4 % 3], axis=1)
    times = np.datetime64("2024-03-01T00:00:00") + steps * np.timedelta64(1, "h")
    now = spec.context
    static = np.array([1.0, 2.5, 0.0])
    shop = example.Example(
        rows[:now], times[:now].astype(str), rows[now:, :1], "shop 1", future.astype(float), static
    )
    example.write(folder, shop)
    rewrite_manifest(folder, spec)
