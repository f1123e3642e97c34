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
@all_reading_options
def command(file: Path, context: int | None, horizon: int | None, **given: object) -> None:
    """Print how FILE is read, its channels and seasons, and a command to train on it."""
    from foretell.data.reading import read
    from foretell.settings.given import reading_of
    from foretell.terminal.panels import print_panel

    panel = read(file, reading_of(given))
    options = [
        f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None
    ]
    print_panel(panel, file, options, context, horizon)
