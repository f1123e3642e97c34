"""`foretell export`: from a checkpoint to a verified bundle."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import Precision
from foretell.commands.bounds_option import bounds_option


@click.command("export")
@click.argument(
    "source",
    metavar="CHECKPOINT|BUNDLE",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--to",
    "repository",
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
@click.option(
    "--triton",
    type=click.Path(file_okay=False, path_type=Path),
    help="Model repository of Triton that gets the bundle's graph; made if it does not exist.",
)
@click.option(
    "--mlflow",
    type=click.Path(path_type=Path),
    help="Folder that becomes a model of MLflow (extra mlflow).",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: Path,
    repository: Path | None,
    triton: Path | None,
    mlflow: Path | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Write CHECKPOINT as an ONNX bundle that was verified against torch.

    With --triton or --mlflow the bundle is written for these servers as well, and so is a BUNDLE
    that is given, or the newest of a model's folder of them.
    """
    from foretell.bundle import layout

    if mlflow is not None:
        # Missing, or in the way, it is told before an export that takes its time.
        import_module("mlflow")
        if mlflow.exists():
            raise _refusal(ValueError(f"{mlflow}: exists already"))
    bundle = layout.newest(source)
    if not (bundle / layout.MANIFEST).is_file():
        if repository is None:
            raise click.UsageError(f"{source} is no bundle: a checkpoint needs --to")
        bundle = _export(source, repository, **options)
    elif triton is None and mlflow is None:
        raise click.UsageError(f"{source} is a bundle: it needs --triton or --mlflow")
    elif given := _given(ctx):
        raise click.UsageError(f"{source} is a bundle: {given} is of checkpoints")
    try:
        if triton is not None:
            from foretell.triton_repository import write as write_triton

            click.echo(f"written to {write_triton(bundle, triton)}")
        if mlflow is not None:
            from foretell.mlflow_model import write as write_mlflow

            click.echo(f"written to {write_mlflow(bundle, mlflow)}")
    except ValueError as error:
        raise _refusal(error) from None


def _given(ctx: click.Context) -> str | None:
    """An option of checkpoints that was given, if any was."""
    for option in ctx.command.params:
        is_given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if is_given and option.name not in ("source", "triton", "mlflow"):
            return option.opts[0]
    return None


def _refusal(error: Exception) -> SystemExit:
    click.echo(f"foretell export: {error}", err=True)
    return SystemExit(2)


def _export(
    checkpoint: Path,
    repository: Path,
    *,
    name: str | None,
    version: str | None,
    data: Path | None,
    roll: int,
    precision: Precision,
    bounds: dict[str, Bound] | None,
    anyway: bool,
) -> Path:
    """Export a checkpoint and tell what was verified; ends the command on errors."""
    import onnx

    from foretell.bundle import layout
    from foretell.bundle.errors import BundleError
    from foretell.bundle.manifest import read
    from foretell.data.errors import DataError
    from foretell.data.scaler import offset_warning
    from foretell.export.errors import ExportError
    from foretell.export.operators import without_kernel
    from foretell.export.write import export_checkpoint
    from foretell.models.checkpoint import CheckpointError
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
        raise _refusal(error) from None
    manifest = read(folder)
    if said := offset_warning(manifest.scaler, manifest.channels):
        click.echo(f"warning: {said}", err=True)
    print_composition(manifest)
    if "cuda" not in manifest.devices:
        graph = onnx.load(folder / layout.EXPLAIN_GRAPH, load_external_data=False)
        click.echo(f"without a kernel on CUDA: {', '.join(without_kernel(graph))}")
    print_verification(manifest.verification, manifest.targets, manifest.precision)
    print_test({manifest.name: manifest.test}, manifest.frequency)
    print_calibration(manifest)
    click.echo(f"written to {folder}")
    return folder
