"""`foretell compare`: test whether a version forecasts better than another."""

from __future__ import annotations

import click

from foretell.commands.command import Command
from foretell.commands.options import ledger_options, server_options


@click.command("compare", cls=Command, short_help="Test which of two versions forecasts better.")
@click.argument("model")
@click.argument("a")
@click.argument("b")
@click.option("--series", help="Name of the only series that counts.")
@click.option("--since", help="First day that counts, such as 2026-06-01.")
@click.option("--until", help="Last day that counts.")
@ledger_options
@server_options
def command(
    model: str,
    a: str,
    b: str,
    series: str | None,
    since: str | None,
    until: str | None,
    frequency: str | None,
    namespace: str | None,
    url: str,
    key: str | None,
) -> None:
    """Compare versions A and B of MODEL on the windows that both have forecast.

    The server's ledger knows the forecasts and what came true. The test allows for windows that
    overlap, at 2.5% for each side, and is for one look: daily looks until a difference shows find
    one more often.
    """
    from foretell.client import Client

    with Client(url, key=key) as client:
        found = client.compare(
            model,
            a,
            b,
            series=series,
            since=since,
            until=until,
            frequency=frequency,
            namespace=namespace,
        )
    if found.loss_a is not None and found.loss_b is not None:
        click.echo(f"{model}@{a}: error {found.loss_a:.4f} of the naive forecast's")
        click.echo(f"{model}@{b}: error {found.loss_b:.4f}")
    click.echo(f"{found.windows} windows of {found.series} series")
    click.echo(found.sentence)
