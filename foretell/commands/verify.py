"""`foretell verify`: check that a bundle loads and computes what was exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from foretell.bundle.manifest import Manifest
from foretell.commands.command import Command
from foretell.commands.options import FILE, FOLDER, NEW_FILE, accept, signed_by_option

if TYPE_CHECKING:
    from foretell.verification.reference import Cases


@click.command("verify", cls=Command, refused=1, short_help="Check a bundle as the server does.")
@click.argument("bundle", type=FOLDER)
@click.option("--checkpoint", type=FOLDER, help="Checkpoint to compare with in torch as well.")
@click.option(
    "--data",
    type=FILE,
    help="Table to compare on; the checkpoint's training data by default.",
)
@click.option(
    "--reference",
    type=NEW_FILE,
    help="File of windows and their forecasts by torch: written with --checkpoint, read without "
    "it, for machines without torch.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Device that runs the graphs; cuda checks every GPU.",
)
@click.option(
    "--timings", is_flag=True, help="Measure batches of 1 to 1,024 windows on the device."
)
@signed_by_option
@click.option(
    "--report", is_flag=True, help="Print the verification of the export, and run nothing."
)
def command(
    bundle: Path,
    checkpoint: Path | None,
    data: Path | None,
    reference: Path | None,
    device: Literal["cpu", "cuda"],
    timings: bool,
    signed_by: tuple[Path, ...],
    report: bool,
) -> None:
    """Load BUNDLE as the server does: check manifest, checksums and graphs, and run the probes.

    BUNDLE is the folder of a bundle, or of a model for its newest version. It may be in any folder,
    unless a signature is required. The exit code is 1 if the bundle fails, and 2 if the device is
    missing. Only --checkpoint needs torch.
    """
    from foretell.bundle import layout
    from foretell.bundle.checksums import check
    from foretell.bundle.manifest import read
    from foretell.signed import is_required
    from foretell.terminal.tables import print_calibration, print_composition, print_verification

    if data is not None and checkpoint is None:
        raise click.UsageError("--data needs --checkpoint")
    bundle = layout.newest(bundle)
    folder = accept(bundle, signed_by)
    if is_required(signed_by):
        click.echo(f"signed: {bundle / layout.SIGNATURE}")
    manifest = read(folder)
    if report:
        print_composition(manifest)
        print_verification(manifest.verification, manifest.targets, manifest.precision)
        print_calibration(manifest)
        return
    if device == "cuda" or timings or (reference is not None and checkpoint is None):
        check(folder, manifest.files)
        cases = _cases(checkpoint, data, reference)
        passed = _on_device(folder, manifest, cases, device, timings=timings)
    else:
        passed = _as_served(folder, manifest, checkpoint, data, reference)
    click.echo(f"{manifest.name}@{manifest.version}: {'verified' if passed else 'FAILED'}")
    raise SystemExit(0 if passed else 1)


def _cases(checkpoint: Path | None, data: Path | None, path: Path | None) -> Cases:
    """Reference cases: computed by torch (and saved to the path), or read from the path."""
    from foretell.verification import reference

    if checkpoint is None:
        return {} if path is None else reference.read(path)
    cases = reference.of_checkpoint(checkpoint, data)
    if path is not None:
        reference.save(cases, path)
    return cases


def _on_device(
    bundle: Path,
    manifest: Manifest,
    cases: Cases,
    device: Literal["cpu", "cuda"],
    *,
    timings: bool,
) -> bool:
    from foretell.bundle.results import Verification
    from foretell.service.engine.runtime import Runtime
    from foretell.terminal.tables import print_timings, print_verification
    from foretell.verification.device import Subject, check, noting, time_batches

    runtime, subject = Runtime(device), Subject(bundle, manifest, cases)
    found = check(subject, runtime)
    where = f"{found.devices} GPU" if runtime.on_gpu else "the CPU"
    click.echo(f"{manifest.precision}, onnxruntime {runtime.library} on {where}")
    if found.replay_error is not None:
        click.echo(f"replays differ from plain runs by {found.replay_error:.1g}")
    if found.checks:
        ran = Verification(
            reference="torch float64", provider=device.upper(), checks=tuple(found.checks)
        )
        print_verification(ran, manifest.targets, manifest.precision)
    if timings and not found.faults:
        with noting(found.faults, "timed"):
            print_timings(time_batches(subject, runtime))
    for fault in found.faults:
        click.echo(f"foretell verify: {fault}", err=True)
    return not found.faults


def _as_served(
    bundle: Path,
    manifest: Manifest,
    checkpoint: Path | None,
    data: Path | None,
    reference: Path | None,
) -> bool:
    """Open a bundle as the server does, and compare it with a checkpoint if one is given."""
    from foretell.bundle.checksums import check
    from foretell.bundle.placement import misplacement

    if reference is not None:
        _cases(checkpoint, data, reference)
    if checkpoint is not None and "cpu" not in manifest.devices:
        check(bundle, manifest.files)
        opened = "not opened: a CPU has no kernels for some of its operators"
    else:
        opened = f"opened with {_open(bundle, manifest)}"
    wrote = ", ".join(f"{name} {version}" for name, version in manifest.libraries.items())
    click.echo(f"{manifest.precision}, written with {wrote or 'unknown libraries'}\n{opened}")
    if reason := misplacement(bundle, manifest):
        click.echo(f"servers do not load it from here: {reason}")
    return checkpoint is None or _against_checkpoint(bundle, manifest, checkpoint, data)


def _open(bundle: Path, manifest: Manifest) -> str:
    """Load a bundle as the server does; return the library and provider that ran it."""
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
