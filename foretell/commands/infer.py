"""`foretell infer`: have a bundle continue the series of a file, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.commands.asking import AskedBundle, FileCommand, bundle_options
from foretell.commands.forecast import forecast_options, show

if TYPE_CHECKING:
    from foretell.service.settings import DeviceChoice


@click.command("infer", cls=FileCommand)
@bundle_options
@forecast_options
def command(
    bundle: Path,
    file: Path,
    device: DeviceChoice,
    hold_back: int,
    **options: Any,  # noqa: ANN401
) -> None:
    """Forecast the end of FILE with BUNDLE in this process; print it, and write or draw it.

    BUNDLE is a bundle, or a model's folder of bundles: its newest. All else is as in `foretell
    forecast`.
    """
    show(AskedBundle(bundle, file, device, hold_back), **options)
