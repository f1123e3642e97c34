"""`foretell forecast`: ask a server to continue a CSV."""

from __future__ import annotations

from pathlib import Path

import click


def _levels(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter("expected levels such as 0.1,0.9") from None


@click.command("forecast")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--model", help="Served name, or name@version; needed when the server has more than one."
)
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server.")
@click.option("--horizon", type=click.IntRange(min=1), help="Steps ahead; the model's by default.")
@click.option(
    "--quantiles",
    callback=_levels,
    help="Their levels, such as 0.1,0.9; pairs of them are drawn as bands.",
)
@click.option("--series", help="Name of one of several series in FILE.")
@click.option(
    "--hold-back",
    type=click.IntRange(min=0),
    default=0,
    help="Rows at the end that are not sent; drawn next to the forecast.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw history and forecast to this file (png, svg or pdf).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds to wait.",
)
def command(
    file: Path,
    model: str | None,
    url: str,
    horizon: int | None,
    quantiles: tuple[float, ...],
    series: str | None,
    hold_back: int,
    picture: Path | None,
    timeout: float,
) -> None:
    """Post the tail of FILE, print the forecast and draw it."""
    from rich.table import Table

    from foretell.forecast_file import ClientError, request_forecast
    from foretell.models.data.errors import DataError
    from foretell.terminal import show

    try:
        forecast = request_forecast(
            url,
            file,
            model=model,
            horizon=horizon,
            timeout=timeout,
            quantiles=quantiles,
            series=series,
            hold_back=hold_back,
        )
    except (ClientError, DataError) as error:
        click.echo(f"foretell forecast: {error}", err=True)
        raise SystemExit(2) from None
    table = Table(title=f"{forecast.model} on {file.name}")
    table.add_column("timestamp")
    channels, times = forecast.targets, forecast.timestamps.astype("M8[s]")
    if forecast.quantiles:
        # A row for each channel: columns of all levels of all channels are too many.
        table.add_column("channel")
        for title in ("forecast", *(f"{level:g}" for level in forecast.quantiles)):
            table.add_column(title, justify="right")
        levels = (forecast.values, *forecast.quantiles.values())
        for step, time in enumerate(times):
            for i, name in enumerate(channels):
                table.add_row(str(time), name, *(f"{each[step, i]:.4g}" for each in levels))
    else:
        for name in channels:
            table.add_column(name, justify="right")
        for time, row in zip(times, forecast.values, strict=True):
            table.add_row(str(time), *(f"{value:.4g}" for value in row))
    show(table)
    if picture is not None:
        from foretell.plot import draw

        try:
            draw(forecast, picture)
        except (OSError, ValueError) as error:
            click.echo(f"foretell forecast: {picture}: {error}", err=True)
            raise SystemExit(2) from None
        click.echo(f"drawn to {picture}")
