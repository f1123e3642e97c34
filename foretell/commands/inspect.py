"""`foretell inspect`: the content of a table, and a command to train on it."""

from __future__ import annotations

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
    from foretell.data.proposals import propose
    from foretell.data.reading import Reading, read, split_names
    from foretell.settings.given import reading_of
    from foretell.terminal.panels import print_panel

    targets = split_names(target) if target else []
    panel = read(file, reading_of(given), targets)
    options = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in (given | {"target": target}).items()
        if value is not None
    ]
    proposed = propose(file, panel.source.reading if panel.source else Reading(), targets)
    print_panel(panel, file, options, proposed, context, horizon)
