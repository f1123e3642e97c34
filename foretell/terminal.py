"""Tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from foretell.bundle.manifest import (
    Accuracy,
    Manifest,
    Precision,
    TestResult,
    Verification,
)
from foretell.bundle.measure import deviation_warning
from foretell.bundle.verdict import verdict
from foretell.timeaxis.frequency import Frequency

if TYPE_CHECKING:
    from foretell.presets import Preset

_FILE_WIDTH, _UNBOUNDED = 200, 1_000_000


def show(table: Table) -> None:
    """Print a table; a file or pipe has no width that cells would have to be cut to."""
    _console().print(table)


def width() -> int:
    """Characters of a line."""
    return _console().width


def width_of(table: Table) -> int:
    """Characters that a table would have, if nothing of it were cut."""
    console = _console()
    return console.measure(table, options=console.options.update(width=_UNBOUNDED)).maximum


def _console() -> Console:
    # What looks like markup, such as the unit in `wind [m/s]`, is part of a name.
    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False, emoji=False)


def print_composition(manifest: Manifest) -> None:
    """Print what was exported in a faster form and what as it was, and for which devices."""
    for label, names in (
        ("in a faster form", manifest.rewrites),
        ("as trained", manifest.plain),
        ("for", manifest.devices),
    ):
        if names:
            click.echo(f"{label}: {', '.join(names)}")


def print_verification(
    verification: Verification, targets: Sequence[str], precision: Precision
) -> None:
    """Print the comparisons of a graph with torch, and warn of what they do not hold it to.

    Args:
        verification: Of the graph.
        targets: What it forecasts.
        precision: Of the graph.
    """
    ran = verification.provider
    if verification.emulates is not None:
        ran += f", emulating {verification.emulates},"
    table = Table(title=f"{ran} against {verification.reference}")
    table.add_column("check")
    for column in ("windows", "left out", "median error", "max error", "allowed", ""):
        table.add_column(column, justify="right")
    for check in verification.checks:
        table.add_row(
            check.name,
            str(check.windows),
            str(check.excluded),
            f"{check.median_error:.1e}",
            f"{check.max_error:.1e}",
            f"{check.tolerance:.0e}",
            "ok" if check.passed else "FAILED",
        )
    show(table)
    if warning := deviation_warning(verification, targets, precision):
        click.echo(f"warning: {warning}", err=True)


def print_test(results: Mapping[str, TestResult | None], frequency: str) -> None:
    """Print accuracy on the test split next to the baselines, MSE / MAE, and what it is worth.

    Args:
        results: By name of the model; None where nothing was measured.
        frequency: Of their steps.
    """
    known = {name: result for name, result in results.items() if result is not None}
    if not known:
        return
    table = Table(title="test split, MSE / MAE in standardised units")
    table.add_column("model")
    for column in ("windows", "torch", "onnxruntime", "last value", "seasonal naive"):
        table.add_column(column, justify="right")
    for name, result in known.items():
        measured = (result.model, result.onnx, result.last_value, result.seasonal_naive)
        table.add_row(name, str(result.windows), *map(errors, measured))
    show(table)
    for name, result in known.items():
        click.echo(f"{name}: {verdict(result, Frequency.parse(frequency))}")
        if result.overlaps:
            click.echo(
                f"{name}: training rows of one series lie after test rows of another, so that its "
                "errors may be too small; train --cut-at DATE cuts all series at one date"
            )


def print_calibration(manifest: Manifest) -> None:
    """Print what the intervals were to hold and held in the test split, a row a pass and level.

    Where there are none, why.
    """
    report = manifest.calibration
    if report is None:
        if manifest.distribution is not None:
            click.echo(f"quantiles: {manifest.distribution.source}")
        if manifest.calibration_missing is not None:
            click.echo(f"no quantiles: {manifest.calibration_missing}")
        return
    if not report.coverage:
        click.echo(
            f"quantiles for {report.steps} steps, from the errors of {report.windows[0]} windows "
            f"({report.method.replace('_', ' ')}); the test split is too short to measure them"
        )
        return
    table = Table(title="prediction intervals on the test split, widths in standardised units")
    columns = ("steps", "calibrated on", "of them disjoint", "windows", "interval", "held", "width")
    for column in columns:
        table.add_column(column, justify="right")
    horizon = report.steps // len(report.windows)
    for measured in report.coverage:
        number = measured.last_step // horizon - 1
        table.add_row(
            f"{measured.first_step} to {measured.last_step}",
            str(report.windows[number]),
            str(report.disjoint[number]),
            str(measured.windows),
            f"{measured.level:.0%}",
            f"{measured.coverage:.1%}",
            f"{measured.width:.3f}",
        )
    show(table)


def print_presets(presets: Iterable[Preset]) -> None:
    """Print what there is, a table a family and a row a data set."""
    by_title: dict[str, dict[str, list[Preset]]] = {}
    for one in presets:
        data = one.name.rpartition("-")[0]
        by_title.setdefault(one.title, {}).setdefault(data, []).append(one)
    for title, rows in by_title.items():
        click.echo(title)
        table = Table()
        table.add_column("MSE / MAE published")
        horizons = [one.name.rpartition("-")[2] for one in next(iter(rows.values()))]
        for horizon in horizons:
            table.add_column(f"-{horizon}", justify="right")
        for name, found in rows.items():
            table.add_row(name, *(_published(one) for one in found))
        show(table)


def _published(preset: Preset) -> str:
    return "-" if preset.published is None else "{:.3f} / {:.3f}".format(*preset.published)


def errors(accuracy: Accuracy | None) -> str:
    """MSE / MAE, as all tables have them."""
    return "-" if accuracy is None else f"{accuracy.mse:.5f} / {accuracy.mae:.5f}"
