"""`foretell export`: from a checkpoint to a verified bundle."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from foretell.bundle.bounds import Bound
from foretell.bundle.results import Precision
from foretell.commands.command import Command
from foretell.commands.options import (
    FILE,
    FOLDER,
    NEW_FOLDER,
    accept,
    bounds_option,
    signed_by_option,
)
from foretell.errors import RefusedError


@click.command("export", cls=Command, short_help="Write a checkpoint as a verified bundle.")
@click.argument("source", metavar="CHECKPOINT|BUNDLE", type=FOLDER)
@click.option(
    "--out",
    "repository",
    type=NEW_FOLDER,
    help="Repository for `foretell serve`; created if missing.",
)
@click.option("--name", help="Served name; the checkpoint folder's name by default.")
@click.option("--model-version", help="Integer version; the newest plus one by default.")
@click.option("--data", type=FILE, help="Table to verify on; the training data by default.")
@click.option(
    "--calibration-passes",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of consecutive horizons to calibrate quantiles for, if the validation split is "
    "long enough.",
)
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="float32",
    show_default=True,
    help="Precision of the large matrix products. float16 and bfloat16 are for GPUs.",
)
@bounds_option
@click.option(
    "--force",
    is_flag=True,
    help="Export even if the model does not beat repeating the last value or season.",
)
@click.option(
    "--triton",
    type=NEW_FOLDER,
    help="Triton model repository to write the graph to; created if missing.",
)
@click.option(
    "--mlflow",
    type=click.Path(path_type=Path),
    help="New folder to write an MLflow model to (extra mlflow).",
)
@signed_by_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: Path,
    repository: Path | None,
    triton: Path | None,
    mlflow: Path | None,
    signed_by: tuple[Path, ...],
    **options: Any,  # noqa: ANN401
) -> None:
    """Write CHECKPOINT as an ONNX bundle that was verified against torch.

    --triton and --mlflow also write the bundle for these servers. They accept an existing BUNDLE in
    place of CHECKPOINT, or a model's folder for its newest bundle.
    """
    from foretell.bundle import layout

    if mlflow is not None:
        # Fail before the export, which takes long.
        import_module("mlflow")
        if mlflow.exists():
            raise RefusedError(f"{mlflow}: exists already")
    bundle = layout.newest(source)
    if not (bundle / layout.MANIFEST).is_file():
        if repository is None:
            raise click.UsageError(f"{source} is not a bundle: a checkpoint needs --out")
        if signed_by:
            raise click.UsageError(f"{source} is not a bundle: checkpoints have no signature")
        bundle = _export(source, repository, **options)
    elif triton is None and mlflow is None:
        raise click.UsageError(f"{source} is a bundle: it needs --triton or --mlflow")
    elif given := _given(ctx):
        raise click.UsageError(f"{source} is a bundle: {given} applies to checkpoints only")
    else:
        bundle = accept(bundle, signed_by)
    if triton is not None:
        from foretell.hosts.triton import write as write_triton

        click.echo(f"written to {write_triton(bundle, triton)}")
    if mlflow is not None:
        from foretell.hosts.mlflow import write as write_mlflow

        click.echo(f"written to {write_mlflow(bundle, mlflow)}")


def _given(ctx: click.Context) -> str | None:
    """The first option on the command line that applies to checkpoints only."""
    for option in ctx.command.params:
        is_given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if is_given and option.name not in ("source", "triton", "mlflow", "signed_by"):
            return option.opts[0]
    return None


def _export(
    checkpoint: Path,
    repository: Path,
    *,
    name: str | None,
    model_version: str | None,
    data: Path | None,
    calibration_passes: int,
    precision: Precision,
    bounds: dict[str, Bound] | None,
    force: bool,
) -> Path:
    """Export a checkpoint and print the verification."""
    import onnx

    from foretell.bundle import layout
    from foretell.bundle.manifest import read
    from foretell.data.scaler import offset_warning
    from foretell.export.operators import without_kernel
    from foretell.export.write import export_checkpoint
    from foretell.terminal.tables import print_bundle, print_composition

    folder = export_checkpoint(
        checkpoint,
        repository,
        name=name,
        version=model_version,
        data=data,
        roll=calibration_passes,
        precision=precision,
        bounds=bounds,
        anyway=force,
    )
    manifest = read(folder)
    if warning := offset_warning(manifest.scaler, manifest.channels, manifest.covariates):
        click.echo(f"warning: {warning}", err=True)
    print_composition(manifest)
    if "cuda" not in manifest.devices:
        graph = onnx.load(folder / layout.EXPLAIN_GRAPH, load_external_data=False)
        click.echo(f"without a kernel on CUDA: {', '.join(without_kernel(graph))}")
    print_bundle(manifest)
    click.echo(f"written to {folder}")
    return folder
