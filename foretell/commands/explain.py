"""`foretell explain`: what a model looks at to continue a series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from foretell.commands.asking import (
    AskedServer,
    FileCommand,
    ask,
    check_picture,
    picture_option,
    server_options,
)


@click.command("explain", cls=FileCommand)
@server_options
@click.option("--series", help="Name of one of several series in FILE.")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    help="Name of a stage, such as encoder.0.self; all that have a map by default.",
)
@picture_option("heat maps and lags")
def command(
    file: Path,
    model: str | None,
    url: str,
    key: str | None,
    timeout: float,
    hold_back: int,
    series: str | None,
    stages: tuple[str, ...],
    picture: Path | None,
    **flags: str | None,
) -> None:
    """Send the end of FILE to a server and print what the model looked at to continue it.

    Weights are means over heads, and over channels that attend by themselves.
    """
    from foretell.evidence import find_evidence
    from foretell.evidence_text import print_evidence

    check_picture(picture)
    attention: dict[str, Any] = {"heads": "mean"}
    if stages:
        attention["stages"] = list(stages)
    asked = AskedServer(file, model, url, key, timeout, hold_back)
    series_names = None if series is None else (series,)
    (forecast,) = ask(asked, flags, {"attention": attention}, series_names, one=True).forecasts
    found = find_evidence(forecast.attention, forecast.times[0])
    title = f"{forecast.model} on {file.name}: what it looked at"
    click.echo(title)
    print_evidence(found)
    without = [stage["name"] for stage in forecast.attention if stage["form"] == "none"]
    if without:
        click.echo(f"without a map: {', '.join(without)}")
    if picture is not None and found:
        from foretell.plot_evidence import draw

        draw(found, title, picture)
        click.echo(f"written to {picture}")
