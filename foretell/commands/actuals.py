"""`foretell actuals`: write the actual values of a file into a server's ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.commands.command import Command, option
from foretell.commands.options import FILE, print_notes, server_options, table_options
from foretell.errors import RefusedError

if TYPE_CHECKING:
    from foretell.client import Written

# Series and errors that a reader can take in.
_MOST = 40


@click.command("actuals", cls=Command, short_help="Send what came true to a server's ledger.")
@click.argument("file", type=FILE)
@click.option("--model", help="NAME or NAME@VERSION; needed if the server has several models.")
@click.option(
    "--series",
    help="Name of the only series of a file without names; the file's name by default, as for "
    "`foretell predict`.",
)
@server_options
@option(
    "--channels",
    heading="How the data is read",
    help="Columns to send, such as a,b [those that the model forecasts].",
)
@table_options
def command(
    file: Path, model: str | None, series: str | None, url: str, key: str | None, **reading: object
) -> None:
    """Send the actual values of FILE to a server's ledger, which compares forecasts with them.

    FILE is as for `foretell predict`: one series, or several with a column of names. Series are
    named as in forecasts. Rows and values may be missing; later values of a time replace earlier
    ones. The key must also be allowed to read models.
    """
    from foretell.client import Client
    from foretell.predict.actuals import read_actuals, write_actuals
    from foretell.predict.forecasts import choose_model
    from foretell.settings.given import reading_of

    how = reading_of(reading)
    with Client(url, key=key) as client:
        card = choose_model(client.models(), model)
        tables, notes = read_actuals(file, card, how, series or file.stem)
        print_notes(notes)
        if series is not None and {*tables[0]["unique_id"].to_pylist()} != {series}:
            raise RefusedError(f"{file}: its series have names; leave --series out")
        written = write_actuals(client, model or card.name, tables)
    _print(written)
    if written.notes.errors:
        raise SystemExit(1)


def _print(written: Written) -> None:
    """Print counts of values, and errors and warnings of the server."""
    from foretell.terminal.tables import Facts, show

    for warning in written.notes.warnings:
        click.echo(f"warning: {warning.message}", err=True)
    errors = written.notes.errors
    for error in errors[:_MOST]:
        place = f"{error.place}: " if error.place else ""
        click.echo(f"warning: nothing of series {error.series}: {place}{error.message}", err=True)
    if (more := len(errors) - _MOST) > 0:
        click.echo(f"warning: nothing of {more:,} series more", err=True)
    counts = {str(name): each for name, each in written.series.items()}
    if 1 < len(counts) <= _MOST:
        rows = [
            (name, f"{each.new:,}", f"{each.changed:,}", f"{each.same:,}")
            for name, each in counts.items()
        ]
        show(Facts("", ("series", "new", "changed", "same"), rows))
    of = next(iter(counts)) if len(counts) == 1 else f"{len(counts):,} series"
    click.echo(
        f"{of}: {written.new:,} new, {written.changed:,} changed and {written.same:,} same values"
    )
