"""docs/accuracy.md: errors of trained recipes next to those that were published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean

from bench.page import machine, table, write_part
from bench.results import Record
from foretell.presets import Preset

PAGE = Path(__file__).parent.parent.parent / "docs" / "accuracy.md"
# Epochs no better after which a training ends, whatever the recipe has: published code has 100.
PATIENCE = 20
# Features from which on less than float32 is faster.
WIDE = 128
_HEAD = (
    *("preset", "ours", "published", "seeds", "DLinear, ours", "last value", "last season"),
    *("windows", "epochs", "minutes"),
)
_TEXT = """\
`make bench-accuracy DATA=…` wrote this part. {machine}

Mean squared / mean absolute error over all windows of the test split, standardised by the training
rows. *Ours*: the mean of the seeds, half their range behind ±. *DLinear*: ours, of the same
data set and horizon. A training ends after {patience} epochs that were no better, where the recipe
has more; `--precision` says what models of {wide} features and more are trained in. *Epochs*: run,
and in brackets the one whose weights were kept. *Minutes*: of one training, on one thread of a
machine that did other things too; of one that was interrupted, since it went on.

{rows}"""


def write(records: Mapping[str, Record], presets: Iterable[Preset], page: Path = PAGE) -> None:
    """Write the table of what is measured so far.

    Args:
        records: By preset and seed.
        presets: In the order of the rows.
        page: The file.
    """
    rows = [row for preset in presets if (row := _row(preset, records)) is not None]
    text = _TEXT.format(
        machine=machine("torch"), rows=table(_HEAD, rows), patience=PATIENCE, wide=WIDE
    )
    write_part("accuracy", text, page)


def _of(name: str, records: Mapping[str, Record]) -> list[Record]:
    return [record for key, record in records.items() if key.rpartition(" ")[0] == name]


def _row(preset: Preset, records: Mapping[str, Record]) -> tuple[str, ...] | None:
    runs = _of(preset.name, records)
    if not runs:
        return None
    linear = _of(f"dlinear/{preset.name.partition('/')[2]}", records)
    first = runs[0]
    epochs = ", ".join(f"{run['epochs']} ({run['best']})" for run in runs)
    return (
        f"`{preset.name}`",
        _errors(runs),
        "" if preset.published is None else "{:.3f} / {:.3f}".format(*preset.published),
        str(len(runs)),
        _errors(linear) if linear else "",
        f"{first['last_mse']:.3f} / {first['last_mae']:.3f}",
        f"{first['season_mse']:.3f} / {first['season_mae']:.3f}" if "season_mse" in first else "",
        f"{first['windows']:,}",
        epochs,
        f"{mean(run['minutes'] for run in runs):.0f}",
    )


def _errors(runs: list[Record]) -> str:
    return " / ".join(_spread([run[name] for run in runs]) for name in ("mse", "mae"))


def _spread(values: list[float]) -> str:
    spread = (max(values) - min(values)) / 2
    return f"{mean(values):.3f}" + (f" ± {spread:.3f}" if len(values) > 1 else "")
