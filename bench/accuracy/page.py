"""docs/accuracy.md: errors of trained recipes next to those that were published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean

from bench.page import machine, table, write_part
from bench.results import Record
from foretell.settings.presets import Preset

PAGE = Path(__file__).parent.parent.parent / "docs" / "accuracy.md"
# Epochs no better after which a training ends, whatever the recipe has: published code has 100.
PATIENCE = 20
# Features from which on less than float32 is faster.
WIDE = 128
# What most are trained in: neither keys nor the page tell of it.
_USUAL = "float32"
_WHOLE = "whole"
_HEAD = (
    *("preset", "ours", "whole batches", "published", "seeds", "DLinear, ours"),
    *("last value", "last season"),
    *("windows", "epochs", "minutes"),
)
_TEXT = """\
`make bench-accuracy DATA=…` wrote this part; the last training was on this machine, others were on
ones like it. {machine}

Mean squared / mean absolute error over all windows of the test split, standardised by the training
rows. *Ours*: the mean of the seeds, half their range behind ±. *Whole batches*: over the windows
alone that the published code measures, which drops the last batch of its test split; of trainings
whose weights were kept. *DLinear*: ours, of the same data set and horizon. A training ends after
{patience} epochs that were no better, where the recipe has more; `--precision` says what models of
{wide} features and more are trained in, which is told of a preset where it is known not to be
{usual}. *Epochs*: run, and in brackets the one whose weights were kept. *Minutes*: of one training,
on one thread of a machine that did other things too; of one that was interrupted, since it went on.

{rows}"""


def write(records: Mapping[str, Record], presets: Iterable[Preset], page: Path = PAGE) -> None:
    """Write the table of what is measured so far.

    Args:
        records: By `key_of`.
        presets: In the order of the rows.
        page: The file.
    """
    every = [
        (preset, precision, runs)
        for preset in presets
        for precision, runs in _of(preset, records).items()
    ]
    by_name = {preset.name: runs for preset, precision, runs in every if precision == _USUAL}
    rows = [
        _row(preset, precision, runs, by_name.get(f"dlinear/{preset.name.partition('/')[2]}", []))
        for preset, precision, runs in every
    ]
    text = _TEXT.format(
        machine=machine("torch"),
        rows=table(_HEAD, rows),
        patience=PATIENCE,
        wide=WIDE,
        usual=_USUAL,
    )
    write_part("accuracy", text, page)


def key_of(preset: Preset, seed: int, precision: str = _USUAL) -> str:
    """What a result is kept by: another recipe under the same name has none."""
    return f"{_recipe(preset)} {seed}" + ("" if precision == _USUAL else f" {precision}")


def whole_key_of(key: str) -> str:
    """What its errors over whole batches are kept by."""
    return f"{key} {_WHOLE}"


def _recipe(preset: Preset) -> str:
    settings = json.dumps(preset.settings, sort_keys=True, default=str)
    return f"{preset.name} {hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def _of(preset: Preset, records: Mapping[str, Record]) -> dict[str, list[Record]]:
    """Its results, by precision: they are not averaged. Those before it was recorded have none."""
    recipe = f"{_recipe(preset)} "
    found: dict[str, list[Record]] = {}
    for key, record in records.items():
        if key.startswith(recipe) and not key.endswith(f" {_WHOLE}"):
            runs = found.setdefault(record.get("precision", _USUAL), [])
            runs.append(record | {"whole": records.get(whole_key_of(key))})
    return found


def _row(
    preset: Preset, precision: str, runs: list[Record], linear: list[Record]
) -> tuple[str, ...]:
    first = runs[0]
    epochs = ", ".join(f"{run['epochs']} ({run['best']})" for run in runs)
    return (
        f"`{preset.name}`" + ("" if precision == _USUAL else f", {precision}"),
        _errors(runs),
        _errors([run["whole"] for run in runs if run["whole"]]),
        "" if preset.published is None else "{:.3f} / {:.3f}".format(*preset.published),
        str(len(runs)),
        _errors(linear),
        f"{first['last_mse']:.3f} / {first['last_mae']:.3f}",
        f"{first['season_mse']:.3f} / {first['season_mae']:.3f}" if "season_mse" in first else "",
        f"{first['windows']:,}",
        epochs,
        f"{mean(run['minutes'] for run in runs):.0f}",
    )


def _errors(runs: list[Record]) -> str:
    if not runs:
        return ""
    return " / ".join(_spread([run[name] for run in runs]) for name in ("mse", "mae"))


def _spread(values: list[float]) -> str:
    spread = (max(values) - min(values)) / 2
    return f"{mean(values):.3f}" + (f" ± {spread:.3f}" if len(values) > 1 else "")
