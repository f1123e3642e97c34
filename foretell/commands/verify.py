"""`foretell verify`: does a bundle still compute what it was exported to compute?"""

from __future__ import annotations

from pathlib import Path

import click

from foretell.bundle.manifest import Manifest
from foretell.commands.command import Command
from foretell.commands.options import FILE, FOLDER


@click.command("verify", cls=Command, short_help="Check a bundle as the server does.")
@click.argument("bundle", type=FOLDER)
@click.option("--checkpoint", type=FOLDER, help="Compare with this checkpoint in torch as well.")
@click.option(
    "--data",
    type=FILE,
    help="Table to compare on; the one the checkpoint was trained on by default.",
)
@click.option("--report", is_flag=True, help="Print what was verified at export, and run nothing.")
def command(bundle: Path, checkpoint: Path | None, data: Path | None, report: bool) -> None:
    """Open BUNDLE as the server does: its manifest, its sums, its graphs and their probes.

    BUNDLE is any folder that holds one. The exit code is 1 when it fails. Without --checkpoint this
    needs no torch.
    """
    from foretell.bundle.checksums import check
    from foretell.bundle.errors import BundleError
    from foretell.bundle.manifest import read
    from foretell.bundle.placement import misplacement
    from foretell.terminal.tables import print_calibration, print_composition, print_verification

    if data is not None and checkpoint is None:
        raise click.UsageError("--data needs --checkpoint")
    try:
        manifest = read(bundle)
        if report:
            print_composition(manifest)
            print_verification(manifest.verification, manifest.targets, manifest.precision)
            print_calibration(manifest)
            return
        wrote = ", ".join(f"{name} {version}" for name, version in manifest.libraries.items())
        if checkpoint is not None and "cpu" not in manifest.devices:
            check(bundle, manifest.files)
            opened = "not opened: a CPU has no kernels for some of its operators"
        else:
            opened = f"opened with {_open(bundle.resolve(), manifest)}"
        click.echo(f"{manifest.precision}, written with {wrote or 'unknown libraries'}\n{opened}")
        if reason := misplacement(bundle.resolve(), manifest):
            click.echo(f"no server takes it from here: {reason}")
        passed = checkpoint is None or _against_checkpoint(bundle, manifest, checkpoint, data)
    except BundleError as error:
        click.echo(f"foretell verify: {error}", err=True)
        raise SystemExit(1) from None
    click.echo(f"{manifest.name}@{manifest.version}: {'verified' if passed else 'FAILED'}")
    raise SystemExit(0 if passed else 1)


def _open(bundle: Path, manifest: Manifest) -> str:
    """Load a bundle with all that serving asks of it; what ran it."""
    from foretell.service.engine.model import Capacity, Model
    from foretell.service.engine.runtime import Runtime
    from foretell.service.engine.scheduler import Scheduler
    from foretell.service.metrics import Metrics

    observer = Metrics().observer(manifest.name, manifest.version)
    scheduler = Scheduler(threads=1)
    capacity = Capacity(max_batch=1, max_windows=1, max_bytes=1)
    runtime = Runtime("cpu")
    model = Model(bundle, runtime, scheduler, capacity, observer, anywhere=True)
    model.close(timeout=1)
    scheduler.close(timeout=1)
    return f"onnxruntime {runtime.library}, {model.provider}"


def _against_checkpoint(
    bundle: Path, manifest: Manifest, checkpoint: Path, data: Path | None
) -> bool:
    from foretell.export.write import verify_bundle
    from foretell.terminal.tables import print_verification

    verification = verify_bundle(bundle, checkpoint, data)
    print_verification(verification, manifest.targets, manifest.precision)
    return verification.passed
