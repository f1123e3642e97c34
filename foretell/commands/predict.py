"""`foretell predict`: forecast the series of a file, with a server or a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.commands.command import Command
from foretell.commands.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    accept,
    check_picture,
    horizon_option,
    levels_option,
    plot_option,
    print_notes,
    reading_options,
    signed_by_option,
)
from foretell.errors import RefusedError

if TYPE_CHECKING:
    from foretell.client import Client
    from foretell.predict.forecasts import Answers, Forecast
    from foretell.service.settings import DeviceChoice


@click.command("predict", cls=Command, short_help="Forecast the series of a file.")
@click.argument("file", type=FILE)
@click.option("--url", help="URL of the server; http://127.0.0.1:8000 by default.")
@click.option(
    "--bundle",
    type=FOLDER,
    help="Bundle to run here instead of a server; or a model's folder, for its newest bundle.",
)
@signed_by_option
@click.option("--model", help="NAME or NAME@VERSION; needed if the server has several models.")
@click.option("--key", envvar="FORETELL_KEY", help="API key of the server (or FORETELL_KEY).")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the server.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device that runs the bundle.",
)
@horizon_option
@levels_option
@click.option(
    "--series", multiple=True, help="Name of a series to forecast; repeatable; all by default."
)
@click.option(
    "--holdout",
    type=click.IntRange(min=0),
    default=0,
    help="Number of last rows to hold out and compare with the forecast.",
)
@click.option("--explain", is_flag=True, help="Print attention weights; --plot draws them.")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    help="Attention stage to explain, such as encoder.0.self; repeatable.",
)
@click.option(
    "--out", type=NEW_FILE, help="File for all values (.csv, .json or .parquet); - prints CSV."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing --out.")
@plot_option("history and forecast, or attention with --explain,")
@reading_options
def command(
    file: Path,
    url: str | None,
    bundle: Path | None,
    signed_by: tuple[Path, ...],
    key: str | None,
    timeout: float,
    device: DeviceChoice,
    model: str | None,
    horizon: int | None,
    quantiles: tuple[float, ...],
    series: tuple[str, ...],
    holdout: int,
    explain: bool,
    stages: tuple[str, ...],
    out: Path | None,
    overwrite: bool,
    picture: Path | None,
    **reading: object,
) -> None:
    """Forecast what follows FILE, with a server or a bundle; print, write or draw the forecast.

    Only the rows that the model reads are checked. With --explain, attention weights are means over
    heads, and over channels if the stage attends to each channel by itself.
    """
    if url is not None and bundle is not None:
        raise click.UsageError("give --url or --bundle, not both")
    if signed_by and bundle is None:
        raise click.UsageError("--signed-by needs --bundle")
    check_picture(picture)

    from foretell.bundle import layout
    from foretell.predict.output import STDOUT, check_output, write

    if out is not None:
        check_output(out, overwrite=overwrite)
    options: dict[str, Any] = {"horizon": horizon, "quantiles": list(quantiles)}
    if explain or stages:
        options["attention"] = {"heads": "mean"} | ({"stages": list(stages)} if stages else {})
    if bundle is not None:
        bundle = accept(layout.newest(bundle), signed_by)
    with _open(url, bundle, key, timeout, device) as client:
        answers = _ask(client, file, model, series, holdout, options, reading)
    _warn(answers)
    if not answers.forecasts:
        raise RefusedError("no series has a forecast")
    shown = _explanation if "attention" in options else _forecasts
    shown(answers.forecasts, file.name, picture, quiet=out == STDOUT)
    if out is not None:
        write(answers.forecasts, out)
    if out not in (None, STDOUT):
        click.echo(f"written to {out}")
    if answers.failures:
        raise SystemExit(1)


def _forecasts(
    forecasts: Sequence[Forecast], file: str, picture: Path | None, *, quiet: bool
) -> None:
    """Print forecasts; draw them if there is a picture."""
    from foretell.predict.text import print_forecasts

    if not quiet:
        print_forecasts(forecasts, file)
    if picture is not None:
        from foretell.plots.forecasts import draw

        draw(forecasts, picture)
        click.echo(f"drawn to {picture}", err=quiet)


def _explanation(
    forecasts: Sequence[Forecast], file: str, picture: Path | None, *, quiet: bool
) -> None:
    """Print the forecast of the only series and its attention; draw the attention."""
    from foretell.predict.evidence import find_evidence
    from foretell.predict.evidence_text import print_evidence
    from foretell.predict.text import print_forecasts

    (forecast,) = forecasts
    found = find_evidence(forecast.attention, forecast.times[0])
    title = f"{forecast.model} on {file}: what it looked at"
    if not quiet:
        print_forecasts(forecasts, file)
        click.echo(f"\n{title}")
        print_evidence(found, forecast.attention)
    if picture is not None and found:
        from foretell.plots.evidence import draw

        draw(found, title, picture)
        click.echo(f"drawn to {picture}", err=quiet)


def _open(
    url: str | None, bundle: Path | None, key: str | None, timeout: float, device: DeviceChoice
) -> AbstractContextManager[Client]:
    if bundle is not None:
        from foretell.predict.in_process import opened

        return opened(bundle, device)
    from foretell.client import Client

    return Client(url or "http://127.0.0.1:8000", key=key, timeout=timeout, retry_for=timeout)


def _ask(
    client: Client,
    file: Path,
    model: str | None,
    series: tuple[str, ...],
    holdout: int,
    options: dict[str, Any],
    reading: dict[str, object],
) -> Answers:
    """Read the file for the model, and request its forecasts."""
    from foretell.predict.forecasts import choose_model, request_forecasts
    from foretell.predict.histories import read_histories
    from foretell.settings.given import reading_of

    how = reading_of(reading)
    card = choose_model(client.models(), model)
    histories, notes = read_histories(file, card, how, series, holdout, options["horizon"])
    if "attention" in options and len(histories) > 1:
        raise RefusedError(
            f"{file}: {len(histories):,} series; choose one with --series, such as "
            f"{histories[0].name}"
        )
    print_notes(notes)
    given = {name: value for name, value in options.items() if value}
    return request_forecasts(client, model or card.name, card, histories, given, file.stem)


def _warn(answers: Answers) -> None:
    for warning in dict.fromkeys(answers.warnings):
        click.echo(f"warning: {warning}", err=True)
    for name, message in answers.failures.items():
        click.echo(f"warning: series {name} has no forecast: {message}", err=True)
    unsure = [one.series for one in answers.forecasts if one.ill_conditioned]
    if unsure:
        names = f" (series {', '.join(unsure)})" if unsure[0] else ""
        click.echo(
            f"warning: rounding may have decided which steps the model reads{names}: another "
            "machine may forecast otherwise",
            err=True,
        )
