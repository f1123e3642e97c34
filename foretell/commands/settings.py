"""`foretell settings`: the settings that `--set` and `--config` take."""

from __future__ import annotations

import click

from foretell.commands.command import Command


@click.command("settings", cls=Command, short_help="List the settings of trainings and models.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the settings of a training; with NAME, those of an architecture, mechanism or import."""
    from rich.table import Table

    from foretell.settings.described import names, settings_of
    from foretell.terminal.tables import show

    table = Table("setting", "values", "default", "")
    for setting in settings_of(name):
        table.add_row(*setting)
    show(table)
    if name is None:
        click.echo(f"`foretell settings NAME` lists those of others: {names()}")
