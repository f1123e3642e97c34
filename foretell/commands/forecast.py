"""`foretell forecast`: ask a server to continue the series of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from foretell.commands.asking import (
    Asked,
    AskedServer,
    FileCommand,
    ask,
    check_picture,
    picture_option,
    server_options,
)
from foretell.commands.train import refusal

Function = TypeVar("Function", bound=Callable[..., Any])


def levels(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[float, ...]:
    """Levels of quantiles, from one option."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter("expected levels such as 0.1,0.9") from None


_OPTIONS = (
    click.option(
        "--horizon", type=click.IntRange(min=1), help="Steps ahead; the model's by default."
    ),
    click.option(
        "--quantiles",
        callback=levels,
        help="Their levels, such as 0.1,0.9; pairs of them are drawn as bands.",
    ),
    click.option(
        "--series", multiple=True, help="Name of one of several series in FILE; all by default."
    ),
    click.option(
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File that gets all values, .csv, .json or .parquet; - prints CSV alone.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the file of --output."),
    picture_option("history and forecast"),
)


def forecast_options(function: Function) -> Function:
    """Give a command the options of forecasts, and of what becomes of them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("forecast", cls=FileCommand)
@server_options
@forecast_options
def command(
    file: Path,
    model: str | None,
    url: str,
    key: str | None,
    timeout: float,
    hold_back: int,
    **options: Any,  # noqa: ANN401
) -> None:
    """Send the end of FILE to a server, print the forecast, and write or draw it.

    Only the rows that the model reads are checked.
    """
    show(AskedServer(file, model, url, key, timeout, hold_back), **options)


def show(
    asked: Asked,
    *,
    horizon: int | None,
    quantiles: tuple[float, ...],
    series: tuple[str, ...],
    output: Path | None,
    overwrite: bool,
    picture: Path | None,
    **flags: str | None,
) -> None:
    """Have a file forecast, and print, write and draw the forecasts; ends the command on errors.

    Args:
        asked: The file and who is asked.
        horizon: As `forecast_options` have it, as the others.
        quantiles: Likewise.
        series: Likewise.
        output: Likewise.
        overwrite: Likewise.
        picture: Likewise.
        **flags: How the file is read.
    """
    from foretell.forecast_output import STDOUT, check_output, write
    from foretell.forecast_text import print_forecasts

    check_picture(picture)
    try:
        if output is not None:
            check_output(output, overwrite=overwrite)
    except ValueError as error:
        raise refusal(str(error)) from None
    options: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
    if quantiles:
        options["quantiles"] = list(quantiles)
    answers = ask(asked, flags, options, series)
    forecasts = answers.forecasts
    if output != STDOUT:
        print_forecasts(forecasts, asked.file.name)
    if output is not None:
        write(forecasts, output)
    if picture is not None:
        from foretell.plot import draw

        draw(forecasts, picture)
    for path in (output, picture):
        if path is not None and output != STDOUT:
            click.echo(f"written to {path}")
    if answers.failures:
        raise SystemExit(1)
