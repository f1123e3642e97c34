"""`foretell inspect`: what a file holds, before anything is trained on it."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.grouped import GroupedCommand, Option


class _Inspect(GroupedCommand):
    module = "foretell.commands.data_options"


@click.command("inspect", cls=_Inspect)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--context", type=click.IntRange(min=1), help="Steps of history to look at.")
@click.option("--horizon", type=click.IntRange(min=1), help="Steps to forecast.")
@click.pass_context
def command(
    ctx: click.Context, /, file: Path, context: int | None, horizon: int | None, **flags: str | None
) -> None:
    """Print how FILE is read, what is in it and a command to train on it."""
    from foretell.commands.data_options import reading_of
    from foretell.data.reading import read
    from foretell.inspection import print_panel

    try:
        panel = read(file, reading_of(flags))
    except ValueError as error:
        click.echo(f"foretell inspect: {error}", err=True)
        raise SystemExit(2) from None
    given = [
        f"{option.opts[0]}={flags[option.name]}"
        for option in ctx.command.params
        if isinstance(option, Option) and option.name and flags.get(option.name) is not None
    ]
    print_panel(panel, file, given, context, horizon)
