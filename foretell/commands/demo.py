"""`foretell demo`: three trained, exported and verified models to serve."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command
from foretell.commands.options import NEW_FOLDER

_ARCHITECTURES: tuple[str, ...] = ("patchtst", "transformer", "autoformer")


@click.command("demo", cls=Command, short_help="Make three models to serve.")
@click.option(
    "--out",
    "folder",
    default=".demo",
    show_default=True,
    type=NEW_FOLDER,
    help="Folder for data, checkpoints and repository; existing files are kept.",
)
def command(folder: Path) -> None:
    """Train PatchTST, Transformer and Autoformer on a year of hourly weather and export them."""
    from foretell.bundle import layout

    # The folders show that the demo is finished; importing torch would take seconds.
    if all(layout.versions(folder / "repository", name) for name in _ARCHITECTURES):
        click.echo(f"the demo's bundles are in {folder / 'repository'}")
        return
    from rich.console import Console

    from foretell.demo.models import build
    from foretell.terminal.tables import print_test
    from foretell.training.progress import ConsoleProgress

    results = {}
    with ConsoleProgress(Console(stderr=True)) as progress:
        for manifest in build(folder, _ARCHITECTURES, progress):
            click.echo(f"{manifest.name}: trained, exported and verified", err=True)
            results[manifest.name] = manifest.test
    print_test(results, manifest.frequency)
