"""`foretell promote`: say which version of a model serves."""

from __future__ import annotations

import click

from foretell.commands.command import Command
from foretell.commands.options import repository_option


@click.command("promote", cls=Command, short_help="Say which version of a model serves.")
@click.argument("model")
@repository_option
@click.option("--newest", is_flag=True, help="Let the newest version serve, now and later.")
def command(model: str, repository: str, newest: bool) -> None:
    """Let the version MODEL@VERSION serve, also when newer versions come.

    To roll back, promote an earlier version. A server with FORETELL_WATCH_SECONDS follows at its
    next look at the repository, others when they load the model or start. FORETELL_PIN of a server
    wins.
    """
    from foretell.promotion import open_versions, promote, split

    name, version = split(model)
    if (version is None) != newest:
        raise click.UsageError("give MODEL@VERSION, or MODEL with --newest")
    serves = promote(open_versions(repository), name, version)
    click.echo(f"{name}: version {serves} serves" + (", the newest" if newest else ", pinned"))
