"""`foretell export`: from a checkpoint to a verified bundle."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import Precision
from foretell.commands.bounds_option import bounds_option


@click.command("export")
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--to",
    "repository",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of bundles that `foretell serve` serves; made if it does not exist.",
)
@click.option("--name", help="The served name; the checkpoint folder's by default.")
@click.option("--version", help="A whole number; the one after the newest by default.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV to verify on; the one it was trained on by default.",
)
@click.option(
    "--roll",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Passes over the horizon to calibrate quantiles for, where the validation split is long "
    "enough: forecasts of more than one go on from the model's own.",
)
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="float32",
    show_default=True,
    help="Of the large matrix products. float16 and bfloat16 are for GPUs.",
)
@bounds_option
@click.option(
    "--anyway",
    is_flag=True,
    help="Export a model, too, that is no better than repeating the last value or season.",
)
def command(
    checkpoint: Path,
    repository: Path,
    name: str | None,
    version: str | None,
    data: Path | None,
    roll: int,
    precision: Precision,
    bounds: dict[str, Bound] | None,
    anyway: bool,
) -> None:
    """Write CHECKPOINT as an ONNX bundle that was verified against torch."""
    import onnx

    from foretell.bundle import layout
    from foretell.bundle.errors import BundleError
    from foretell.bundle.manifest import read
    from foretell.export.errors import ExportError
    from foretell.export.operators import without_kernel
    from foretell.export.write import export_checkpoint
    from foretell.models.checkpoint import CheckpointError
    from foretell.models.data.errors import DataError
    from foretell.models.data.scaler import offset_warning
    from foretell.terminal import (
        print_calibration,
        print_composition,
        print_test,
        print_verification,
    )

    try:
        folder = export_checkpoint(
            checkpoint,
            repository,
            name=name,
            version=version,
            data=data,
            roll=roll,
            precision=precision,
            bounds=bounds,
            anyway=anyway,
        )
    except (BundleError, CheckpointError, DataError, ExportError) as error:
        click.echo(f"foretell export: {error}", err=True)
        raise SystemExit(2) from None
    manifest = read(folder)
    if said := offset_warning(manifest.scaler, manifest.channels):
        click.echo(f"warning: {said}", err=True)
    print_composition(manifest)
    if "cuda" not in manifest.devices:
        graph = onnx.load(folder / layout.EXPLAIN_GRAPH, load_external_data=False)
        click.echo(f"without a kernel on CUDA: {', '.join(without_kernel(graph))}")
    print_verification(manifest.verification)
    print_test({manifest.name: manifest.test}, manifest.frequency)
    print_calibration(manifest)
    click.echo(f"written to {folder}")
