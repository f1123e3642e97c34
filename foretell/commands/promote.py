"""`foretell promote`: say which version of a model serves."""

from __future__ import annotations

import click

from foretell.commands.command import Command
from foretell.commands.options import repository_option, server_options


@click.command("promote", cls=Command, short_help="Say which version of a model serves.")
@click.argument("model")
@repository_option
@click.option("--newest", is_flag=True, help="Let the newest version serve, now and later.")
@click.option(
    "--if-better",
    is_flag=True,
    help="Only if it forecasts better than the one that serves, by the ledger of the server.",
)
@server_options
def command(
    model: str, repository: str, newest: bool, if_better: bool, url: str, key: str | None
) -> None:
    """Let the version MODEL@VERSION serve, also when newer versions come.

    To roll back, promote an earlier version. A server with FORETELL_WATCH_SECONDS follows at its
    next look at the repository, others when they load the model or start. FORETELL_PIN of a server
    wins.
    """
    from foretell.promotion import check_better, open_versions, promote, split

    name, version = split(model)
    if (version is None) != newest:
        raise click.UsageError("give MODEL@VERSION, or MODEL with --newest")
    if if_better and version is None:
        raise click.UsageError("--if-better needs MODEL@VERSION")
    versions = open_versions(repository)
    if if_better and version is not None:
        from foretell.client import Client

        with Client(url, key=key) as client:
            click.echo(check_better(versions, name, version, client))
    serves = promote(versions, name, version)
    click.echo(f"{name}: version {serves} serves" + (", the newest" if newest else ", pinned"))
