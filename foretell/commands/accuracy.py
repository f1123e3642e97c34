"""`foretell accuracy`: print the scores of a model's forecasts from a server's ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from foretell.commands.command import Command
from foretell.commands.options import ledger_options, server_options
from foretell.errors import RefusedError

if TYPE_CHECKING:
    from foretell.client.ledger import By


@click.command("accuracy", cls=Command, short_help="Show how good the forecasts of a model were.")
@click.argument("model")
@click.option(
    "--by",
    type=click.Choice(["total", "step", "channel", "series", "day"]),
    default="total",
    show_default=True,
    help="Groups of the rows.",
)
@click.option("--since", help="First day of the actual values in UTC, such as 2026-06-01.")
@click.option("--until", help="Last day of the actual values.")
@click.option("--series", help="Name of the only series that counts.")
@click.option("--version", help="The only version that counts.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    help="Most rows [1000]; of more series, those with the largest MASE are shown.",
)
@ledger_options
@server_options
def command(
    model: str,
    by: By,
    since: str | None,
    until: str | None,
    series: str | None,
    version: str | None,
    limit: int | None,
    frequency: str | None,
    namespace: str | None,
    url: str,
    key: str | None,
) -> None:
    """Show how good the forecasts of MODEL were, where the actual values are known by now.

    The bias is the mean of forecast less actual value. MASE is the MAE over that of repeating the
    last season. Each interval has its mean width and the share of actual values within it.
    """
    from foretell.client import Client
    from foretell.terminal.scores import print_scores

    with Client(url, key=key) as client:
        scores = client.accuracy(
            model,
            by=by,
            since=since,
            until=until,
            series=series,
            version=version,
            limit=limit,
            frequency=frequency,
            namespace=namespace,
        )
    if scores.empty:
        raise RefusedError(
            f"no scores of {model}: the ledger has no such forecasts with actual values; "
            "`foretell actuals` sends actual values"
        )
    print_scores(scores, by)
