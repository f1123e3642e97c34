"""`foretell backtest`: the errors that a model would have made on a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.commands.command import Command
from foretell.commands.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    accept,
    check_picture,
    plot_option,
    print_notes,
    reading_options,
    signed_by_option,
)
from foretell.files import check_writable

if TYPE_CHECKING:
    from foretell.backtesting.backtest import Backtest

_LISTED = 30


@click.command("backtest", cls=Command, short_help="Compare a model with baselines on a table.")
@click.argument("file", type=FILE)
@click.option(
    "--model",
    "folder",
    required=True,
    type=FOLDER,
    help="A bundle, a model's folder of bundles (its newest), or a checkpoint.",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of each series, at its end, that is forecast.",
)
@click.option(
    "--stride",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Steps from one origin to the next.",
)
@click.option("--out", type=NEW_FILE, help="CSV file of the errors by channel and step.")
@plot_option("the errors by step")
@signed_by_option
@reading_options
def command(
    file: Path,
    folder: Path,
    share: float,
    stride: int,
    out: Path | None,
    picture: Path | None,
    signed_by: tuple[Path, ...],
    **given: object,
) -> None:
    """Forecast the last rows of FILE from rolling origins, next to the baselines.

    The baselines repeat the last value and the last season; DLinear is trained on the rows before
    the first origin. Where a signature is required, checkpoints are refused.
    """
    check_picture(picture)
    if out is not None:
        check_writable(out)
    from foretell.bundle import layout

    folder = accept(layout.newest(folder), signed_by)

    from foretell.backtesting.backtest import backtest, saw
    from foretell.backtesting.subject import load_subject
    from foretell.bundle.nearness import listed
    from foretell.data.reading import read
    from foretell.settings.given import reading_of

    subject = load_subject(folder)
    own = {name: one for name, one in given.items() if one is not None}
    panel = read(file, reading_of(subject.reading() | own))
    print_notes(panel.notes)
    if saw(subject, panel, share):
        click.echo(
            f"warning: {subject.name} was trained on some of these rows, so its errors may be too "
            "small; set --share to the share of its test split",
            err=True,
        )
    if subject.covariates is not None and subject.covariates.future:
        click.echo(
            "note: the model reads the values of future covariates that came true, which are not "
            "known when it forecasts: errors may be too small",
            err=True,
        )
    found = backtest(subject, panel, share=share, stride=stride)
    if found.short:
        short = f"{len(found.short):,} series: {listed(found.short)}"
        click.echo(f"warning: too short for a backtest: {short}", err=True)
    _print(found)
    if out is not None:
        found.table().to_csv(out, index=False)
        click.echo(f"errors by channel and step written to {out}")
    if picture is not None:
        from foretell.plots.errors import draw

        title = f"{found.name}: mean absolute error of {found.origins:,} forecasts"
        draw(found.lines(), found.channels, f"{title}, in standard deviations", picture)
        click.echo(f"drawn to {picture}")


def _print(found: Backtest) -> None:
    """Print a row for each channel: errors of all forecasters and coverage of the intervals."""
    from foretell.terminal.tables import Facts, errors, show

    first, last = (time.astype("M8[s]") for time in (found.first, found.last))
    listed = found.channels if len(found.channels) <= _LISTED else ()
    places = [*((channel, [at]) for at, channel in enumerate(listed))]
    rows = [
        (
            channel,
            *(errors(scores.overall(at)) for scores in found.scores.values()),
            *(
                f"{held.overall(at):.1%} / {held.width[:, at].mean():.3f}"
                for held in found.held.values()
            ),
        )
        for channel, at in [*places, ("all", [*range(len(found.channels))])]
    ]
    title = f"{found.name}: {found.origins:,} origins, {first} to {last}"
    levels = (f"{level:.0%} held / width" for level in found.held)
    head = ("channel", *found.scores, *levels)
    show(Facts(f"{title}, MSE / MAE in standard deviations", head, rows))
    click.echo(f"{found.name}: {found.verdict}")
