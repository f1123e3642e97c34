"""`foretell import`: convert a checkpoint of published code, or of a library."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.commands.command import Command
from foretell.commands.options import FILE, NEW_FOLDER, bounds_option
from foretell.errors import RefusedError
from foretell.importers.arguments import OPTIONS
from foretell.importers.registry import ARCHITECTURES, CODE_BASES, FOLDERS

if TYPE_CHECKING:
    from collections.abc import Collection

    from foretell.bundle.bounds import Bound
    from foretell.importers.convert import Imported


@click.command("import", cls=Command, short_help="Convert a checkpoint of published code.")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from",
    "source",
    type=click.Choice([*CODE_BASES, *FOLDERS]),
    help="Code base or library of FILE; needed if its keys match several.",
)
@click.option("--alias", "member", help="Name of the model in a library's folder of several.")
@click.option(
    "--arch",
    "architecture",
    type=click.Choice(ARCHITECTURES),
    help="Architecture, if neither setting nor script names it.",
)
@click.option("--data", type=FILE, help="Training CSV: gives scaler, channels and test split.")
@click.option("--setting", help="Folder name that encodes the arguments; FILE's folder by default.")
@click.option(
    "--config",
    "script",
    help="Training script, YAML or JSON; or the training command, 'python run.py --seq_len 96 …'.",
)
@click.option(
    "--set",
    "words",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the training code, such as seq_len=96; repeatable. "
    "`foretell settings import` lists them.",
)
@click.option("--mean", help="Mean of each channel: numbers, or a file of them.")
@click.option("--std", help="Standard deviation of each channel: numbers, or a file.")
@click.option(
    "--no-scaler", "unscaled", is_flag=True, help="The model was trained on unscaled values."
)
@click.option("--channels", help="Channels in the model's order, separated by commas.")
@click.option(
    "--future-covariates",
    help="Future covariates in the order of a transformers model, separated by commas.",
)
@click.option(
    "--static-covariates",
    help="Static covariates of a transformers model, categories first, separated by commas.",
)
@click.option("--frequency", help="Spacing of steps, such as h or 15min [from --data].")
@bounds_option
@click.option(
    "--assume-defaults",
    is_flag=True,
    help="Use the training code's defaults for unknown arguments.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Checkpoint folder to write.")
@click.option("--repository", type=NEW_FOLDER, help="Repository to export a bundle to as well.")
@click.option("--name", help="Served name; the name of --out by default.")
@click.option("--model-version", help="Integer version; the newest plus one by default.")
@click.option("--overwrite", is_flag=True, help="Replace an existing checkpoint at --out.")
def command(
    file: Path,
    source: str | None,
    member: str | None,
    architecture: str | None,
    data: Path | None,
    setting: str | None,
    script: str | None,
    words: tuple[str, ...],
    mean: str | None,
    std: str | None,
    unscaled: bool,
    channels: str | None,
    future_covariates: str | None,
    static_covariates: str | None,
    frequency: str | None,
    bounds: dict[str, Bound] | None,
    assume_defaults: bool,
    out: Path | None,
    repository: Path | None,
    name: str | None,
    model_version: str | None,
    overwrite: bool,
) -> None:
    """Convert FILE, a state_dict of published code or a library's folder, to a foretell checkpoint.

    Arguments that keys and shapes do not determine come from --setting, --config or --set. Errors
    name the arguments that are still missing.
    """
    from foretell.bundle.layout import check_name, check_version
    from foretell.data.reading import split_names
    from foretell.data.scaler import offset_warning
    from foretell.importers.convert import import_checkpoint
    from foretell.importers.data import read_scaler
    from foretell.importers.saved import Request
    from foretell.models.checkpoint import check_free, save
    from foretell.settings.given import read_word
    from foretell.terminal.tables import print_test

    if out is None and (repository is None or name is None):
        raise click.UsageError("give --out CHECKPOINT, or --repository FOLDER with --name NAME")
    served = name or (out.resolve().name if out is not None else "")
    if repository is not None:
        check_name(served)
        check_version(model_version or "1")
    if out is not None:
        check_free(out, overwrite=overwrite)
    arguments = dict(read_word(word, "seq_len=96") for word in words)
    _check_kind(file, source, arguments)
    imported = import_checkpoint(
        Request(
            file=file,
            source=source,
            architecture=architecture,
            member=member,
            data=data,
            setting=setting,
            script=script,
            arguments=arguments,
            scaler=read_scaler(mean, std),
            unscaled=unscaled,
            channels=tuple(split_names(channels)) if channels else None,
            future_covariates=future_covariates,
            static_covariates=static_covariates,
            frequency=frequency,
            bounds=bounds or {},
            defaults=assume_defaults,
        )
    )
    _print_provenance(
        imported, scaler="--no-scaler" if unscaled else "--mean, --std" if mean else None
    )
    if warning := offset_warning(
        imported.info.scaler, imported.info.channels, imported.info.config.covariates
    ):
        click.echo(f"warning: {warning}", err=True)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = out or Path(scratch) / served
        save(checkpoint, imported.model, imported.info, overwrite=overwrite)
        if out is not None:
            click.echo(f"checkpoint written to {out}")
        if repository is not None:
            _export(checkpoint, repository, served, model_version)
        else:
            print_test({served: imported.info.test}, imported.info.frequency)


def _check_kind(file: Path, source: str | None, arguments: Collection[str]) -> None:
    """Refuse a folder or a file that the source does not read, and unknown arguments."""
    if file.is_dir() and source not in FOLDERS:
        raise click.UsageError(
            f"{file} is a folder: name the library with --from {' or '.join(FOLDERS)}"
        )
    if not file.is_dir() and source in FOLDERS:
        raise click.UsageError(f"{file} is not a folder, which --from {source} reads")
    known = {name for name, option in OPTIONS.items() if option.settable}
    known |= {*FOLDERS.get(source or "", ())}
    for name in arguments:
        library = next((library for library, own in FOLDERS.items() if name in own), None)
        if name not in known:
            problem = f"only for folders with --from {library}" if library else "unknown argument"
            raise RefusedError(f"--set {name}: {problem}")


def _export(checkpoint: Path, repository: Path, name: str, version: str | None) -> None:
    from foretell.bundle.manifest import read
    from foretell.export.write import export_checkpoint
    from foretell.terminal.tables import print_bundle

    bundle = export_checkpoint(checkpoint, repository, name=name, version=version)
    manifest = read(bundle)
    print_bundle(manifest)
    click.echo(f"bundle written to {bundle}")


def _print_provenance(imported: Imported, *, scaler: str | None) -> None:
    """Print the model's arguments and their sources; `scaler` names the options of the scaler."""
    from rich.table import Table

    from foretell.bundle.bounds import shown
    from foretell.data.source import DataSource
    from foretell.terminal.tables import show
    from foretell.timeaxis.calendar import Calendar

    info = imported.info
    table, data, rows = Table("argument", "value", "provenance"), "", ""
    source = DataSource.recorded(info.data)
    if source is not None:
        data = source.path.name
        ends = source.splits.ends_of(source.rows, info.config.horizon)
        rows = "" if scaler else f"rows 0 to {ends[0]}"
    arguments = {
        **imported.arguments,
        "channels": (", ".join(info.channels), data or "--channels"),
        "frequency": (info.frequency, data or "--frequency"),
        "scaler": (rows, scaler or data),
        # Arguments from a library's folder replace the three above.
        **imported.arguments,
    }
    for name, (value, provenance) in arguments.items():
        if isinstance(value, Calendar):
            value = ", ".join(value.features)
        table.add_row(name, shown(value) if isinstance(value, float) else str(value), provenance)
    for name, bound in info.bounds.items():
        table.add_row(f"bounds of {name}", str(bound), "--bounds")
    show(table)
