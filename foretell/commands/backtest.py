"""`foretell backtest`: what a model would have forecast on one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.commands.asking import FileCommand, check_picture, picture_option
from foretell.commands.train import flags_given, refusal

if TYPE_CHECKING:
    from foretell.backtest import Backtest

_LISTED = 30


@click.command("backtest", cls=FileCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--model",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A bundle, a model's folder of bundles (its newest), or a checkpoint.",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    show_default=True,
    help="Of the rows of every series, at its end, that are forecast.",
)
@click.option(
    "--stride",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Steps from one origin to the next.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="CSV file that gets the errors by channel, step and forecaster.",
)
@picture_option("the errors by step")
def command(
    file: Path,
    folder: Path,
    share: float,
    stride: int,
    output: Path | None,
    picture: Path | None,
    **flags: str | None,
) -> None:
    """Forecast the last rows of FILE from rolling origins, next to the baselines.

    The baselines repeat the last value and the last season; DLinear is trained on the rows before
    the first origin.
    """
    given = flags_given(flags)
    check_picture(picture)
    if output is not None and not output.parent.is_dir():
        raise refusal(f"{output}: there is no folder {output.parent}")

    from foretell.backtest import backtest, saw
    from foretell.bundle.errors import BundleError
    from foretell.bundle.nearness import listed
    from foretell.commands.data_options import reading_of
    from foretell.data.errors import DataError
    from foretell.data.reading import read
    from foretell.models.checkpoint import CheckpointError
    from foretell.subject import load_subject
    from foretell.training.errors import TrainingError

    try:
        subject = load_subject(folder)
        panel = read(file, reading_of(subject.reading() | given))
        for note in panel.notes:
            click.echo(f"note: {note}", err=True)
        if saw(subject, panel, share):
            click.echo(
                f"warning: {subject.name} learnt from some of these rows; with a --share of its "
                "test split the errors are those of rows it has not seen",
                err=True,
            )
        found = backtest(subject, panel, share=share, stride=stride)
    except (BundleError, CheckpointError, DataError, TrainingError, ValueError) as error:
        raise refusal(str(error)) from None
    if found.short:
        short = f"{len(found.short):,} series: {listed(found.short)}"
        click.echo(f"warning: too short for a backtest: {short}", err=True)
    _print(found)
    if output is not None:
        found.table().to_csv(output, index=False)
        click.echo(f"errors by channel and step written to {output}")
    if picture is not None:
        from foretell.plot_errors import draw

        title = f"{found.name}: mean absolute error of {found.origins:,} forecasts"
        draw(found.lines(), found.channels, f"{title}, in standard deviations", picture)
        click.echo(f"drawn to {picture}")


def _print(found: Backtest) -> None:
    """One table: a row a channel, errors of all forecasters and what the intervals held."""
    from rich.table import Table

    from foretell.terminal import errors, show

    first, last = (time.astype("M8[s]") for time in (found.first, found.last))
    table = Table(
        title=f"{found.name}: {found.origins:,} origins, {first} to {last}, MSE / MAE in standard "
        "deviations"
    )
    table.add_column("channel")
    for name in found.scores:
        table.add_column(name, justify="right")
    for level in found.held:
        table.add_column(f"{level:.0%} held / width", justify="right")
    listed = found.channels if len(found.channels) <= _LISTED else ()
    rows = [*((channel, [place]) for place, channel in enumerate(listed))]
    for channel, places in [*rows, ("all", [*range(len(found.channels))])]:
        table.add_row(
            channel,
            *(errors(scores.overall(places)) for scores in found.scores.values()),
            *(
                f"{held.overall(places):.1%} / {held.width[:, places].mean():.3f}"
                for held in found.held.values()
            ),
        )
    show(table)
    click.echo(f"{found.name}: {found.verdict}")
