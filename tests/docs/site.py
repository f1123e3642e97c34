"""Small versions of the pages' models: the demo and imported models."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from foretell.bundle.attention import Axis, stage
from foretell.bundle.covariates import Covariate, Covariates
from foretell.data.reading import read
from foretell.demo import models as demo
from foretell.demo.data import write_csv
from tests.support.bundles import Spec, lag_stage, write_bundle

# Name and context of the models that the pages import.
_IMPORTED = {"etth1": 96, "etth1-autoformer": 96, "etth1-patchtst": 336, "etth1-tfb": 96}
# The model of covariates.md.
_SHOP = Spec(
    name="shop",
    channels=("sales", "visits"),
    targets=("sales",),
    covariates=Covariates(
        future=(
            Covariate(name="discount"),
            Covariate(name="sky", type="category", categories=("rain", "sun")),
        ),
        static=(Covariate(name="region", type="category", categories=("north", "south")),),
    ),
)
_ETTH1 = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")


def prepare(folder: Path) -> None:
    """Write the folder in which the pages' examples run; `models/` is its repository."""
    (table,) = read(_demo_data(folder)).tables
    demo.write_request("patchtst", table, folder / ".demo" / "request.json")
    for spec in (*_demo_models(table.channels), *_imported_models(), _SHOP):
        write_bundle(folder / "models", spec)
    (folder / ".demo" / "repository").symlink_to(folder / "models")
    _write_etth1(folder / "ETTh1.csv")
    table.values[-demo.CONTEXT :].astype("<f4").tofile(folder / "history.f32")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)


def _demo_data(folder: Path) -> Path:
    path = folder / ".demo" / "greensboro.csv"
    write_csv(path)
    return path


def _demo_models(channels: tuple[str, ...]) -> list[Spec]:
    context = demo.CONTEXT
    patches = Axis(of="patches", length=(context - 16) // 8 + 1, start=-context, stride=8, width=16)
    steps = Axis(length=context, start=-context)
    softmax = [
        stage("encoder.0.self", "softmax", "dense", 2, axis, axis, channels=alone)
        for axis, alone in ((patches, len(channels)), (steps, None))
    ]
    lags = lag_stage(context, name="encoder.0.self")
    return [
        Spec(
            name=name,
            channels=channels,
            context=context,
            horizon=demo.HORIZON,
            with_calendar=name != "patchtst",
            stages=(own,),
            calibrated=4,
            example=4 * context,
        )
        for name, own in zip(
            ("patchtst", "transformer", "autoformer"), (*softmax, lags), strict=True
        )
    ]


def _imported_models() -> list[Spec]:
    return [
        Spec(name=name, channels=_ETTH1, context=context, with_calendar=context == 96)
        for name, context in _IMPORTED.items()
    ]


def _write_etth1(path: Path) -> None:
    hours = np.datetime64("2016-07-01T00", "s") + np.arange(400) * np.timedelta64(3600, "s")
    values = np.random.default_rng(0).normal(10, 5, (400, len(_ETTH1))).round(3)
    rows = [
        ",".join([str(hour).replace("T", " "), *map(str, row)])
        for hour, row in zip(hours, values.tolist(), strict=True)
    ]
    path.write_text("\n".join([",".join(["date", *_ETTH1]), *rows, ""]))
