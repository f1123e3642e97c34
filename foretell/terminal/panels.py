"""The content of a panel: series, spacing, channels, seasons and windows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from foretell.data.apart import join_names
from foretell.data.covariates import Kinds
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.seasons import Season, find_seasons
from foretell.data.splits import Splits, count_windows
from foretell.terminal.tables import Facts, show
from foretell.terminal.words import period
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import shown

_LISTED = 20


def print_panel(
    panel: Panel,
    path: Path,
    given: Sequence[str],
    named: Kinds,
    proposed: Kinds,
    context: int | None,
    horizon: int | None,
) -> None:
    """Print series, spacing, channels, seasons, windows and a command to start with.

    Args:
        panel: The panel.
        path: Its file.
        given: Options for reading the file, which the command repeats.
        named: Covariates that the user names.
        proposed: Covariates that the command names too.
        context: Steps of history; suggested if not given.
        horizon: Steps to forecast; suggested if not given.
    """
    lengths = panel.rows.values()
    shortest = f"{min(lengths):,} to " if min(lengths) < max(lengths) else ""
    pieces = len(panel.tables) - len(lengths)
    holes = f", cut at {pieces} holes" if pieces else ""
    click.echo(f"series     {len(lengths)} of {shortest}{max(lengths):,} rows{holes}")
    first, last = (
        shown(edge([table.timestamps[at] for table in panel.tables]))
        for edge, at in ((min, 0), (max, -1))
    )
    click.echo(f"time       {first} to {last}, every step {panel.frequency}")
    if panel.source is not None:
        known = panel.source.reading
        for label, columns in (("times", known.time_column), ("names", known.id_column)):
            if columns:
                click.echo(f"{label:<11}column {', '.join(repr(name) for name in columns)}")
    for note in panel.notes:
        click.echo(f"note       {note}")
    _print_channels(panel)
    for option, meaning in _covariate_options(proposed).items():
        click.echo(f"covariates {shlex.quote(option)}: {meaning}")
    every = Kinds(
        named.future + proposed.future,
        named.past + proposed.past,
        named.static + proposed.static,
    )
    given = [*given, *_covariate_options(every)]
    seasons = find_seasons(panel)
    lines = "; ".join(_described(season, panel.frequency) for season in seasons)
    click.echo(f"seasons    {lines or 'none found'}")
    _print_start(panel, path, given, seasons, context, horizon)


def _covariate_options(proposed: Kinds) -> dict[str, str]:
    """Options for columns of covariates, with their meaning."""
    meanings = {
        "future": "known ahead, such as facts of the calendar",
        "past": "read and not forecast",
        "static": "one value for each series",
    }
    return {
        f"--{kind}-covariates={join_names(getattr(proposed, kind))}": meaning
        for kind, meaning in meanings.items()
        if getattr(proposed, kind)
    }


def _print_channels(panel: Panel) -> None:
    values = np.concatenate([one.values for one in panel.tables])
    rows = []
    for name, column in zip(panel.channels[:_LISTED], values.T, strict=False):
        low, high = column.min(), column.max()
        remark = "constant" if low == high else "never below 0" if low == 0 else ""
        numbers = (column.mean(), column.std(), low, high)
        rows.append((name, *(f"{number:,.5g}" for number in numbers), remark))
    show(Facts("channels", ("name", "mean", "std", "least", "largest", ""), rows))
    floors = [
        f"{name}=0:"
        for name, column in zip(panel.channels, values.T, strict=True)
        if column.min() == 0 < column.max()
    ]
    if floors:
        click.echo(f"bounds     --bounds={','.join(floors[:_LISTED])} clips forecasts at 0")
    if (more := len(panel.channels) - _LISTED) > 0:
        click.echo(f"and {more} channels more")


def _described(season: Season, frequency: Frequency) -> str:
    """A season in steps and in time."""
    length = period(season.steps, frequency)
    return f"{season.steps} steps ({length}), correlation {season.correlation:.2f}"


def _print_start(
    panel: Panel,
    path: Path,
    given: Sequence[str],
    seasons: Sequence[Season],
    context: int | None,
    horizon: int | None,
) -> None:
    rows = max(panel.rows.values())
    strongest = seasons[-1].steps if seasons else 8
    horizon = horizon or max(min(seasons[0].steps if seasons else 8, rows // 10), 1)
    context = context or max(min(max(2 * strongest, 4 * horizon), rows // 4), 1)
    lengths = f"context {context} and horizon {horizon}"
    try:
        split = Splits.by_fraction().cut(panel, context, horizon)
    except DataError as error:
        click.echo(f"windows    not enough: {error}")
        return
    counts = [
        f"{count_windows(spans, context, horizon):,} {purpose}"
        for spans, purpose in (
            (split.train, "to learn from"),
            (split.validation, "to choose by"),
            (split.test, "to test on"),
        )
    ]
    click.echo(f"windows    of {lengths}: {', '.join(counts)}")
    command = [
        *("foretell", "train", f"--data={path}", *given, "--arch=patchtst"),
        *(f"--context={context}", f"--horizon={horizon}", f"--out={path.name.split('.')[0]}"),
    ]
    click.echo(f"start with {shlex.join(command)}")
