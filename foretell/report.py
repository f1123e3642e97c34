"""Tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from foretell.bundle.manifest import (
    Accuracy,
    CalibrationReport,
    Manifest,
    TestResult,
    Verification,
)

if TYPE_CHECKING:
    from foretell.presets import Preset

_FILE_WIDTH = 200


def show(table: Table) -> None:
    """Print a table; a file or pipe has no width that cells would have to be cut to."""
    Console(width=None if sys.stdout.isatty() else _FILE_WIDTH).print(table)


def print_composition(manifest: Manifest) -> None:
    """Print what was exported in a faster form and what as it was, and for which devices."""
    for label, names in (
        ("in a faster form", manifest.rewrites),
        ("as trained", manifest.plain),
        ("for", manifest.devices),
    ):
        if names:
            click.echo(f"{label}: {', '.join(names)}")


def print_verification(verification: Verification) -> None:
    """Print the comparisons of a graph with torch."""
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


def print_test(results: Mapping[str, TestResult | None]) -> None:
    """Print accuracy on the test split next to the baselines, MSE / MAE, a row a model."""
    known = {name: result for name, result in results.items() if result is not None}
    if not known:
        return
    table = Table(title="test split, MSE / MAE in standardised units")
    table.add_column("model")
    for column in ("windows", "torch", "onnxruntime", "last value", "seasonal naive"):
        table.add_column(column, justify="right")
    for name, result in known.items():
        errors = (result.model, result.onnx, result.last_value, result.seasonal_naive)
        table.add_row(name, str(result.windows), *(_errors(accuracy) for accuracy in errors))
    show(table)


def print_calibration(report: CalibrationReport | None) -> None:
    """Print what the intervals were to hold and held in the test split, a row a pass and level."""
    if report is None or not report.coverage:
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


def _errors(accuracy: Accuracy | None) -> str:
    return "-" if accuracy is None else f"{accuracy.mse:.5f} / {accuracy.mae:.5f}"
