"""`foretell demo`: three trained, exported and verified models to serve."""

from __future__ import annotations

from pathlib import Path

import click

_ARCHITECTURES: tuple[str, ...] = ("patchtst", "transformer", "autoformer")


@click.command("demo")
@click.option(
    "--to",
    "folder",
    default=".demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Gets the data, the checkpoints and the repository; what is there is kept.",
)
def command(folder: Path) -> None:
    """Train PatchTST, Transformer and Autoformer on a year of hourly weather and export them."""
    from foretell.bundle import layout

    # A finished demo is told from its folders: importing torch would take seconds.
    if all(layout.versions(folder / "repository", name) for name in _ARCHITECTURES):
        click.echo(f"the demo's bundles are in {folder / 'repository'}")
        return
    from rich.console import Console

    from foretell.bundle.errors import BundleError
    from foretell.data.errors import DataError
    from foretell.demo import build
    from foretell.export.errors import ExportError
    from foretell.models.checkpoint import CheckpointError
    from foretell.terminal import print_test
    from foretell.training.errors import TrainingError
    from foretell.training.progress import ConsoleProgress

    results = {}
    try:
        with ConsoleProgress(Console(stderr=True)) as progress:
            for manifest in build(folder, _ARCHITECTURES, progress):
                click.echo(f"{manifest.name}: trained, exported and verified", err=True)
                results[manifest.name] = manifest.test
    except (BundleError, CheckpointError, DataError, ExportError, TrainingError) as error:
        click.echo(f"foretell demo: {error}", err=True)
        raise SystemExit(2) from None
    print_test(results, manifest.frequency)
