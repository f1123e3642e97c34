"""`foretell import`: adopt a checkpoint of published code, or of a library."""

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


@click.command("import", cls=Command, short_help="Adopt a checkpoint of published code.")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from",
    "source",
    type=click.Choice([*CODE_BASES, *FOLDERS]),
    help="The code or library it comes from; needed where several have its keys.",
)
@click.option("--alias", "member", help="Which of the models of a library's folder.")
@click.option(
    "--arch",
    "architecture",
    type=click.Choice(ARCHITECTURES),
    help="Its architecture, where neither setting nor script names it.",
)
@click.option("--data", type=FILE, help="CSV it was trained on: scaler, channels and test split.")
@click.option("--setting", help="Name of the folder it was saved in; its own folder's by default.")
@click.option(
    "--config",
    "script",
    help="Its script, YAML or JSON; or its command, 'python run.py --seq_len 96 …'.",
)
@click.option(
    "--set",
    "words",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of its code, such as seq_len=96; repeatable. `foretell settings import` "
    "lists them.",
)
@click.option("--mean", help="Mean of each channel: numbers, or a file of them.")
@click.option("--std", help="Standard deviation of each channel, likewise.")
@click.option("--no-scaler", "unscaled", is_flag=True, help="It was trained on values as they are.")
@click.option("--channels", help="Columns in the model's order, separated by commas.")
@click.option("--frequency", help="Spacing of the steps, such as h or 15min; that of --data.")
@bounds_option
@click.option(
    "--assume-defaults",
    is_flag=True,
    help="Use the code's defaults for arguments that are not known.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Checkpoint folder to write.")
@click.option("--repository", type=NEW_FOLDER, help="Folder of bundles to export it to as well.")
@click.option("--name", help="The served name; that of --out by default.")
@click.option("--model-version", help="A whole number; the one after the newest by default.")
@click.option("--overwrite", is_flag=True, help="Replace the checkpoint that --out has.")
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
    frequency: str | None,
    bounds: dict[str, Bound] | None,
    assume_defaults: bool,
    out: Path | None,
    repository: Path | None,
    name: str | None,
    model_version: str | None,
    overwrite: bool,
) -> None:
    """Adopt FILE, a state_dict of published code or a library's folder, as a checkpoint of our own.

    Arguments that its keys and shapes do not determine come from the name of its folder
    (--setting), its command (--config) or --set; errors name those that are still missing.
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
            frequency=frequency,
            bounds=bounds or {},
            defaults=assume_defaults,
        )
    )
    _print_provenance(
        imported, scaler="--no-scaler" if unscaled else "--mean, --std" if mean else None
    )
    if warning := offset_warning(imported.info.scaler, imported.info.channels):
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
    """Refuse a folder where a file is read, a file where a folder is, and unknown arguments."""
    if file.is_dir() and source not in FOLDERS:
        raise click.UsageError(
            f"{file} is a folder: name the library with --from {' or '.join(FOLDERS)}"
        )
    if not file.is_dir() and source in FOLDERS:
        raise click.UsageError(f"{file} is no folder, which --from {source} reads")
    known = {name for name, option in OPTIONS.items() if option.settable}
    known |= {*FOLDERS.get(source or "", ())}
    for name in arguments:
        library = next((library for library, own in FOLDERS.items() if name in own), None)
        if name not in known:
            whose = f"of folders by --from {library} alone" if library else "unknown argument"
            raise RefusedError(f"--set {name}: {whose}")


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
        # Those that a library's folder gives replace the three above.
        **imported.arguments,
    }
    for name, (value, provenance) in arguments.items():
        if isinstance(value, Calendar):
            value = ", ".join(value.features)
        table.add_row(name, shown(value) if isinstance(value, float) else str(value), provenance)
    for name, bound in info.bounds.items():
        table.add_row(f"bounds of {name}", str(bound), "--bounds")
    show(table)
