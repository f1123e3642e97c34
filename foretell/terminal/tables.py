"""Tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from foretell.bundle.manifest import Manifest
from foretell.bundle.measure import deviation_warning
from foretell.bundle.results import Accuracy, CalibrationReport, Precision, TestResult, Verification
from foretell.bundle.verdict import verdict
from foretell.timeaxis.frequency import Frequency

if TYPE_CHECKING:
    from foretell.settings.presets import Preset

_FILE_WIDTH, _UNBOUNDED = 200, 1_000_000


class Facts(NamedTuple):
    """A table of texts.

    Attributes:
        caption: Caption of the table.
        head: Titles of the columns.
        rows: Cells; the first cell of each row is its name.
        prose: Whether cells may be longer than a line.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: bool = False


def show(table: Table | Facts) -> None:
    """Print a table; in files and pipes, cells are not cut to the width of a terminal."""
    if isinstance(table, Facts):
        facts, table = table, Table(title=table.caption or None)
        for place, title in enumerate(facts.head):
            table.add_column(title, justify="right" if place else "left")
        for row in facts.rows:
            table.add_row(*row)
    _console().print(table)


def width() -> int:
    """The width of a line in characters."""
    return _console().width


def width_of(table: Table) -> int:
    """The width in characters of a table whose cells are not cut."""
    console = _console()
    return console.measure(table, options=console.options.update(width=_UNBOUNDED)).maximum


def _console() -> Console:
    # Brackets, such as in `wind [m/s]`, are part of a name and not markup.
    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False, emoji=False)


def print_composition(manifest: Manifest) -> None:
    """Print the parts exported in a faster form, the parts exported as trained, and the devices."""
    for label, names in (
        ("in a faster form", manifest.rewrites),
        ("as trained", manifest.plain),
        ("for", manifest.devices),
    ):
        if names:
            click.echo(f"{label}: {', '.join(names)}")


def print_bundle(manifest: Manifest) -> None:
    """Print the verification, the test errors and the intervals of an export."""
    print_verification(manifest.verification, manifest.targets, manifest.precision)
    print_test({manifest.name: manifest.test}, manifest.frequency)
    print_calibration(manifest)


def verification_facts(verification: Verification) -> Facts:
    """The comparisons of a graph with torch."""
    ran = verification.provider
    if verification.emulates is not None:
        ran += f", emulating {verification.emulates},"
    return Facts(
        f"{ran} against {verification.reference}",
        ("check", "windows", "left out", "median error", "largest error", "allowed", ""),
        [
            (
                check.name,
                f"{check.windows:,}",
                f"{check.excluded:,}",
                f"{check.median_error:.1e}",
                f"{check.max_error:.1e}",
                f"{check.tolerance:.0e}",
                "passed" if check.passed else "FAILED",
            )
            for check in verification.checks
        ],
    )


def print_verification(
    verification: Verification, targets: Sequence[str], precision: Precision
) -> None:
    """Print the comparisons of a graph with torch, and warn of large deviations.

    Args:
        verification: Verification of the graph.
        targets: Channels that the graph forecasts.
        precision: Precision of the graph.
    """
    show(verification_facts(verification))
    if warning := deviation_warning(verification, targets, precision):
        click.echo(f"warning: {warning}", err=True)


def print_timings(seconds: Mapping[int, Mapping[str, float]]) -> None:
    """Print milliseconds of a run by batch and way to run it, and windows/s of the first way."""
    table = Table(title="milliseconds of a run, copies included")
    ways = list(dict.fromkeys(way for by_way in seconds.values() for way in by_way))
    for column in ("windows", *ways, "windows/s"):
        table.add_column(column, justify="right")
    for batch, by_way in seconds.items():
        if by_way:
            cells = (f"{1e3 * by_way[way]:.3f}" if way in by_way else "" for way in ways)
            table.add_row(str(batch), *cells, f"{batch / next(iter(by_way.values())):,.0f}")
    show(table)


def print_test(results: Mapping[str, TestResult | None], frequency: str) -> None:
    """Print accuracy on the test split next to the baselines, MSE / MAE, and the verdict.

    Args:
        results: Results by name of the model; None if not measured.
        frequency: Spacing of the steps.
    """
    known = {name: result for name, result in results.items() if result is not None}
    if not known:
        return
    head = ("model", "windows", "torch", "onnxruntime", "last value", "seasonal naive")
    rows = [
        (
            name,
            str(one.windows),
            *map(errors, (one.model, one.onnx, one.last_value, one.seasonal_naive)),
        )
        for name, one in known.items()
    ]
    show(Facts("test split, MSE / MAE in standardised units", head, rows))
    for name, result in known.items():
        click.echo(f"{name}: {verdict(result, Frequency.parse(frequency))}")
        if result.overlaps:
            click.echo(
                f"{name}: training rows of one series lie after test rows of another, so that its "
                "errors may be too small; train with --cut-at DATE to split all series at one date"
            )


def interval_facts(report: CalibrationReport) -> Facts:
    """Nominal and measured coverage of intervals on the test split, by pass and level."""
    horizon = report.steps // len(report.windows)
    rows = []
    for one in report.coverage:
        number = one.last_step // horizon - 1
        rows.append(
            (
                f"{one.first_step} to {one.last_step}",
                f"{report.windows[number]:,}",
                f"{report.disjoint[number]:,}",
                f"{one.windows:,}",
                f"{one.level:.0%}",
                f"{one.coverage:.1%}",
                f"{one.width:.3f}",
            )
        )
    return Facts(
        "prediction intervals on the test split, widths in standardised units",
        ("steps", "calibrated on", "of them disjoint", "windows", "interval", "held", "width"),
        rows,
    )


def print_calibration(manifest: Manifest) -> None:
    """Print the coverage of the intervals, or the reason why there are no quantiles."""
    report = manifest.calibration
    if report is None:
        if manifest.distribution is not None:
            click.echo(f"quantiles: {manifest.distribution.source}")
        if manifest.calibration_missing is not None:
            click.echo(f"no quantiles: {manifest.calibration_missing}")
    elif report.coverage:
        show(interval_facts(report))
    else:
        click.echo(
            f"quantiles for {report.steps} steps, from the errors of {report.windows[0]} windows "
            f"({report.method.replace('_', ' ')}); the test split is too short to measure them"
        )


def print_presets(presets: Iterable[Preset]) -> None:
    """Print a table for each family of presets, with a row for each data set."""
    by_title: dict[str, dict[str, list[Preset]]] = {}
    for one in presets:
        data = one.name.rpartition("-")[0]
        by_title.setdefault(one.title, {}).setdefault(data, []).append(one)
    for title, found in by_title.items():
        click.echo(title)
        horizons = [f"-{one.name.rpartition('-')[2]}" for one in next(iter(found.values()))]
        rows = [(name, *map(_published, ones)) for name, ones in found.items()]
        show(Facts("", ("MSE / MAE published", *horizons), rows))


def _published(preset: Preset) -> str:
    return "-" if preset.published is None else "{:.3f} / {:.3f}".format(*preset.published)


def errors(accuracy: Accuracy | None) -> str:
    """MSE / MAE in the format of all tables."""
    return "-" if accuracy is None else f"{accuracy.mse:.5f} / {accuracy.mae:.5f}"
