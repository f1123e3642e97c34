"""`foretell inspect`: the content of a table, and a command to train on it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from foretell.commands.command import Command
from foretell.commands.options import all_reading_options


@click.command("inspect", cls=Command, short_help="Print the content of a table.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--context", type=click.IntRange(min=1), help="Steps of history to look at.")
@click.option("--horizon", type=click.IntRange(min=1), help="Steps to forecast.")
@click.option("--target", help="Channels to forecast, separated by commas.")
@all_reading_options
def command(
    file: Path, context: int | None, horizon: int | None, target: str | None, **given: object
) -> None:
    """Print how FILE is read, its columns, and a command to train on it."""
    from foretell.data.errors import DataError
    from foretell.data.proposals import Proposal, propose
    from foretell.data.reading import read, split_names
    from foretell.settings.given import reading_of
    from foretell.terminal.panels import print_panel

    targets = split_names(target) if target else []
    reading, proposed = reading_of(given), Proposal()
    # The reader names all that is wrong.
    with suppress(DataError):
        proposed = propose(file, reading, targets)
    named = reading.kinds
    if proposed.ahead:
        future, static = proposed.ahead, proposed.kinds.static
        changes = {"future_covariates": named.future + future}
        changes["static_covariates"] = named.static + static
        reading = reading.model_copy(update=changes)
    panel = read(file, reading, targets)
    options = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in (given | {"target": target}).items()
        if value is not None and not name.endswith("_covariates")
    ]
    print_panel(panel, file, options, named, proposed.kinds, context, horizon)
