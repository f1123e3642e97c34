"""Replays weeks of weather: hourly forecasts through a server with a ledger, which scores them.

Run it with `make replay`, or `python -m foretell.demo.replay --help`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd
from pydantic import TypeAdapter

from foretell.client import Client, ForetellError, InvalidInputError, PartialForecastError
from foretell.commands.command import Command
from foretell.demo.data import STATIONS, write_csv

LEVELS = (0.1, 0.9)
# Hours whose actual values are sent together.
_SENT = 6
_ANSWER = TypeAdapter(dict[str, Any])


def replay(
    client: Client, tables: Mapping[str, pd.DataFrame], models: Sequence[str], hours: int
) -> Iterator[int]:
    """Forecast from each of the last hours, and send the actual values of every six hours.

    Args:
        client: Client of a server with a ledger.
        tables: Rows of each series, with an index of times and the models' channels; as many rows
            as the context of the models and `hours`, at least.
        models: Names of the models.
        hours: Number of origins, an hour apart.

    Yields:
        The number of origins so far.

    Raises:
        InvalidInputError: the server has no ledger, or too few rows are given.
        ForetellError: a request failed.
    """
    cards = [client.model(name) for name in models]
    if not all(card.ledger for card in cards):
        raise InvalidInputError(
            "the server has no ledger: start it with `make serve`, or set FORETELL_LEDGER",
            place="url",
        )
    context = max(card.context for card in cards)
    for name, table in tables.items():
        if len(table) < context + hours:
            raise InvalidInputError(
                f"{name} has {len(table)} rows: {context + hours} are needed for {hours} hours",
                place="hours",
            )
    for hour in range(hours):
        histories = []
        for name, table in tables.items():
            end = len(table) - hours + hour
            history = table.iloc[end - context : end]
            histories.append(history.rename_axis("ds").reset_index().assign(unique_id=name))
        frame = pd.concat(histories, ignore_index=True)
        for name in models:
            # The server warns of unusual weather.
            answer = client.forecast_with_notes(frame, model=name, quantiles=LEVELS)
            if answer.notes.errors:
                raise PartialForecastError(answer)
        if (hour + 1) % _SENT == 0 or hour + 1 == hours:
            sent = hour // _SENT * _SENT
            rows = {
                name: table[len(table) - hours :][sent : hour + 1] for name, table in tables.items()
            }
            _send(client, models[0], rows)
        yield hour + 1


def _send(client: Client, model: str, rows: Mapping[str, pd.DataFrame]) -> None:
    """Send rows of series as actual values."""
    inputs = [
        {
            "name": name,
            "series": table.to_numpy().tolist(),
            "channels": [*table.columns],
            "start_timestamp": table.index[0].isoformat(),
        }
        for name, table in rows.items()
    ]
    answer = client.request("actuals", {"model": model, "inputs": inputs}, _ANSWER)
    for output in answer["outputs"]:
        if output["error"]:
            raise ForetellError(f"actual values: {output['error']['message']}")


@click.command(cls=Command)
@click.option(
    "--folder",
    default=".demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of `foretell demo`, where the data are.",
)
@click.option("--url", default="localhost:8000", show_default=True, help="Address of the server.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="A model; several options are several models. [default: the first two of the server]",
)
@click.option(
    "--hours",
    default=21 * 24,
    show_default=True,
    type=click.IntRange(min=6),
    help="Number of hours from which forecasts are made.",
)
def main(folder: Path, url: str, models: tuple[str, ...], hours: int) -> None:
    """Forecast the last weeks of a year of weather, hour by hour, in two places.

    The server must remember forecasts: FORETELL_LEDGER. Its page then shows what came true.
    """
    tables = {}
    for station in STATIONS:
        path = folder / f"{station}.csv"
        if not path.exists():
            write_csv(path, station)
        tables[station] = pd.read_csv(path, index_col="date", parse_dates=True)
    with (
        Client(url) as client,
        click.progressbar(length=hours, label=f"{hours} hours") as progress,
    ):
        names = models or [card.name for card in client.models()[:2]]
        for _ in replay(client, tables, names, hours):
            progress.update(1)
    address = url if "://" in url else f"http://{url}"
    click.echo(f"done: {address.rstrip('/')}/#/accuracy shows what came true")


if __name__ == "__main__":
    main()
