"""Training of a model on a panel, up to its checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from foretell.bundle.calibration import LEAST_WINDOWS
from foretell.bundle.checksums import sha256
from foretell.bundle.nearness import listed
from foretell.bundle.results import TestResult
from foretell.bundle.verdict import baseline_names
from foretell.data.errors import DataError
from foretell.data.panel import Panel, check_bounds
from foretell.data.scaler import offset_warning
from foretell.data.source import DataSource
from foretell.data.splits import Split, overlap
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import (
    WEIGHTS,
    Checkpoint,
    CheckpointInfo,
    KeptNetwork,
    Refits,
    check_free,
    library_versions,
    save,
)
from foretell.timeaxis.timestamps import shown
from foretell.training.accuracy import baselines, evaluate, measure_within
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.logs import CsvLog, Together
from foretell.training.preparation import Prepared, prepare, targets_of
from foretell.training.progress import Progress
from foretell.training.refits import REFITS, refit_errors
from foretell.training.resume import PartialRun
from foretell.training.trainer import Trainer, choose_device


def train(
    settings: TrainingConfig,
    panel: Panel,
    out: Path,
    *,
    restart: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Checkpoint:
    """Train a model, measure it on the test split and write its checkpoint.

    After each epoch the state is written to `<out>.partial`, and the same call resumes from it. On
    a CPU it ends with exactly the weights of an uninterrupted training.

    Args:
        settings: Settings of model and training.
        panel: The data.
        out: Folder of the checkpoint.
        restart: Discard the state of an unfinished training.
        overwrite: Replace the checkpoint at `out`.
        progress: Receives epochs, notes and warnings. Epochs also go to the checkpoint's log.

    Returns:
        The written checkpoint, with the model on the CPU.

    Raises:
        ResumeError: the settings differ from those of the unfinished training.
        TrainingError: the settings do not fit, a kept network learnt from validation or test rows,
            or the loss diverged.
        DataError: a split has no window, or rows exceed the bounds.
        CheckpointError: `out` exists.
        OSError: `out` cannot be written.
    """
    out = out.resolve()
    progress = progress or Progress()
    check_free(out, overwrite=overwrite)
    targets = targets_of(settings, panel.channels, panel.covariates)
    check_bounds(settings.bounds, targets, panel)
    device = choose_device(settings)
    prepared = prepare(settings, panel)
    panel = prepared.panel
    _warn_of_short(prepared.split, progress)
    if warning := offset_warning(prepared.scaler, panel.channels, panel.covariates):
        progress.warned(warning)
    date = overlap(panel, prepared.split, settings.context)
    if date is not None:
        progress.warned(
            "training rows of one series lie after test rows of another, which may make test "
            f"errors too small; --cut-at {shown(date)} cuts all series at one date"
        )
    kept = None
    if settings.network is not None and prepared.kept is not None:
        kept = KeptNetwork(
            sha256=sha256(settings.network / WEIGHTS),
            data=prepared.kept.data,
            training=prepared.kept.training,
        )
    if prepared.warning:
        progress.warned(prepared.warning)
    source = DataSource.of(panel, prepared.splits)
    trainer = Trainer(prepared.config, prepared.train, prepared.validation, settings, device)
    model = trainer.model

    partial = PartialRun(
        out,
        settings.model_dump(mode="json")
        | {"device": device.type, "precision": trainer.precision}
        # The complete configuration, in whatever form its settings were given.
        | {"model": prepared.config.model_dump(mode="json"), "data": panel.fingerprint()}
        | ({} if kept is None else {"network": kept.sha256}),
    )
    if restart:
        partial.remove()
    state = partial.load(device, progress.warned)
    if state is not None:
        trainer.load_state(state)
    partial.prepare()
    progress = Together((progress, CsvLog(partial.log)))
    names, size = baseline_names(panel.frequency), windows_that_fit(model)
    progress.compared(
        len(prepared.validation),
        {
            names[name]: evaluate(predict, trainer.validation, size)
            for name, predict in baselines(prepared.validation, panel.frequency).items()
        },
    )
    if settings.learning_rate is None:
        progress.noted(f"learning rate {trainer.learning_rate:.3g}, for the width of the model")
    progress.started(settings.epochs, trainer.steps_per_epoch, trainer.epoch)
    while not trainer.finished:
        trainer.run_epoch(progress)
        partial.save(trainer.state())
    trainer.restore_best()

    # Without TF32, since export compares the graph with this accuracy.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        windows = prepared.test.to(device)
        test = measure_within(
            model, settings.bounds, targets, prepared.scaler, windows, panel.frequency
        )
    test = test.model_copy(update={"overlaps": date is not None})
    refits = _refit_errors(settings, panel, prepared, trainer, progress)
    info = _info(settings, panel, source, prepared, trainer, test, kept)
    save(out, model.to("cpu"), info, log=partial.log, refits=refits, overwrite=overwrite)
    partial.remove()
    return Checkpoint(info, model)


def _info(
    settings: TrainingConfig,
    panel: Panel,
    source: DataSource | None,
    prepared: Prepared,
    trainer: Trainer,
    test: TestResult,
    kept: KeptNetwork | None,
) -> CheckpointInfo:
    """The checkpoint's description of its model."""
    return CheckpointInfo.model_validate(
        {
            "config": prepared.config,
            "channels": panel.channels,
            "frequency": str(panel.frequency),
            "scaler": prepared.scaler,
            "bounds": settings.bounds,
            "data": source,
            "test": test,
            "training": {
                "seed": settings.seed,
                "epochs": trainer.epoch,
                "best_epoch": trainer.best.epoch,
                "validation_loss": trainer.best.loss,
                "loss": settings.loss
                if trainer.model.head is None
                else trainer.model.head.loss_name,
                "learning_rate": trainer.learning_rate,
                "batch_size": settings.batch_size,
                "libraries": library_versions(),
                "device": trainer.device.type,
                "precision": trainer.precision,
                "network": kept,
            },
        }
    )


def _refit_errors(
    settings: TrainingConfig,
    panel: Panel,
    prepared: Prepared,
    trainer: Trainer,
    progress: Progress,
) -> Refits | None:
    """Errors of refits for calibration, if the validation split has too few windows.

    None if it has enough, or if there are too few rows for refits.
    """
    windows = prepared.validation.known(LEAST_WINDOWS)
    if windows >= LEAST_WINDOWS:
        return None
    if settings.network is not None:
        progress.warned(
            f"there will be no prediction intervals: the validation split holds {windows} windows, "
            "too few, and a kept network has seen the rows on which refits would be measured"
        )
        return None
    filled = windows < len(prepared.validation)
    progress.warned(
        f"the validation split holds {windows} windows{' of known values' if filled else ''}, too "
        f"few for prediction intervals: they use the errors of {REFITS} refits on earlier rows"
    )
    try:
        return refit_errors(settings, panel, prepared, trainer.best.epoch, trainer.device)
    except (DataError, TrainingError) as error:
        progress.warned(f"there will be no prediction intervals: {error}")
        return None


def _warn_of_short(split: Split, progress: Progress) -> None:
    for names, fate in (
        (split.trained_on_only, "too short to be tested on, trained on alone"),
        (split.left_out, "too short for a window, left out"),
    ):
        if names:
            progress.warned(f"{fate}: {len(names):,} series: {listed(names)}")
