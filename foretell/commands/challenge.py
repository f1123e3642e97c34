"""`foretell challenge`: let another version forecast as well, to compare it."""

from __future__ import annotations

import click

from foretell.commands.command import Command
from foretell.commands.options import repository_option


@click.command("challenge", cls=Command, short_help="Let another version forecast as well.")
@click.argument("model")
@repository_option
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="Share of the requests that it forecasts once more; 0 ends it.",
)
@click.option("--off", is_flag=True, help="End it.")
def command(model: str, repository: str, share: float, off: bool) -> None:
    """Let MODEL@VERSION forecast a share of the requests for MODEL once more.

    It forecasts after the version that serves has answered, when no other requests wait. A model
    has one challenger at most.
    """
    from foretell.promotion import challenge, end_challenge, open_versions, split

    name, version = split(model)
    if off or not share:
        end_challenge(open_versions(repository), name)
        click.echo(f"{name}: there is no challenger")
        return
    if version is None:
        raise click.UsageError("give MODEL@VERSION, or MODEL with --off")
    challenge(open_versions(repository), name, version, share)
    click.echo(f"{name}: version {version} is the challenger, for {share:.3g} of the requests")
