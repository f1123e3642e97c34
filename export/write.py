"""From a checkpoint to a bundle in a repository."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from importlib.metadata import version as library_version
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from foretell.bundle import calibration, evaluation, example, layout
from foretell.bundle.bounds import Bounds, limits
from foretell.bundle.checksums import sha256
from foretell.bundle.evaluation import Evaluation
from foretell.bundle.manifest import Manifest, read
from foretell.bundle.placement import appearing, check_free
from foretell.bundle.results import Accuracy, Precision, TestResult, Verification
from foretell.bundle.scaler import Scaler
from foretell.bundle.verdict import is_worth_nothing, verdict
from foretell.data.panel import Panel, check_bounds
from foretell.data.scaler import fit
from foretell.export import card
from foretell.export.adversarial import adversarial
from foretell.export.conformal import ROLL, calibrate
from foretell.export.data_windows import (
    data_of,
    natural,
    split_of,
    synthetic,
    whole,
    windows_of,
)
from foretell.export.errors import ExportError, UncalibratedError
from foretell.export.external_data import share_weights
from foretell.export.graphs import OPSET, trace_all
from foretell.export.operators import devices_of
from foretell.export.origin import Origin
from foretell.export.precision import reduce_precision
from foretell.export.rewrites import composition, inference_form
from foretell.export.rules import RULES, Rules
from foretell.export.runtime import Graph
from foretell.export.sample import example_of
from foretell.export.scores import evaluate_graph
from foretell.export.verification import Verified, verify
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import Checkpoint, CheckpointInfo, Refits, load, load_refits
from foretell.models.config import ARCHITECTURES
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import mean_of_known, measure_within
from foretell.training.windows import Windows

_VERIFIED_WINDOWS = 128
_ADVERSARIAL_WINDOWS = 16
_PROBES = 4
# A server may run the probes on another device, whose rounding differs; the second, relative to the
# largest error of a forecast here, counts in half precision.
_PROBE_TOLERANCE = 1e-4
_PROBE_SLACK = 4
_LIBRARIES = ("foretell", "torch", "onnx", "onnxscript", "numpy")


def export_checkpoint(
    checkpoint: Path,
    repository: Path,
    *,
    name: str | None = None,
    version: str | None = None,
    data: Path | None = None,
    roll: int = ROLL,
    precision: Precision = "float32",
    bounds: Bounds | None = None,
    seed: int = 0,
    anyway: bool = False,
) -> Path:
    """Write a verified bundle; the folder appears whole or not at all.

    Args:
        checkpoint: Folder of the trained model.
        repository: Folder of bundles; made if it does not exist.
        name: The model's name; the checkpoint folder's by default.
        version: A whole number; the one after the newest by default.
        data: Current path of the CSV that the checkpoint names, if it was moved. For a checkpoint
            that names no CSV, any CSV of its channels to verify on. Without either the graphs are
            verified on synthetic windows.
        roll: Most passes over the horizon to calibrate quantiles for; fewer if the validation split
            of the checkpoint's own data is too short.
        precision: Precision of the large matrix products; half precision is for CUDA.
        bounds: Limits of channels, by name; those of the checkpoint by default.
        seed: Seed of the choice of windows.
        anyway: Write a model trained by foretell even if it is no better than the baselines.

    Returns:
        The bundle's folder, `<repository>/<name>/<version>`.

    Raises:
        BundleError: name or version are not allowed, or the version exists.
        CheckpointError: the checkpoint cannot be read.
        DataError: the data cannot be read, is not the data of the checkpoint, or lies beyond the
            bounds.
        ExportError: a graph does not equal the model, or the model is no better than the
            baselines; nothing is written.
        OSError: the repository cannot be written.
    """
    name = layout.check_name(name or checkpoint.resolve().name)
    version = layout.check_version(version or layout.next_version(repository, name))
    target = repository / name / version
    check_free(target)
    loaded = load(checkpoint)
    panel, refits = data_of(loaded.info, data), load_refits(checkpoint)
    if bounds is None:
        bounds = loaded.info.bounds
    else:
        check_bounds(bounds, loaded.info.targets, panel)
    loaded = _with(loaded, panel, scaler=_scaler(loaded.info, panel), bounds=bounds)
    if refits is not None:
        refits = Refits.of(*refits[1:], limits(bounds, loaded.info.targets))
    if not anyway:
        _check_worth(loaded.info)
    origin = Origin.of(checkpoint, loaded.info, panel)
    with appearing(target) as folder:
        _write(loaded, panel, refits, folder, name, version, roll, precision, seed, origin)
    return target


def verify_bundle(bundle: Path, checkpoint: Path, data: Path | None = None) -> Verification:
    """Compare a written bundle with its checkpoint again.

    Args:
        bundle: Folder of the bundle.
        checkpoint: Folder of the checkpoint that it was exported from.
        data: As in `export_checkpoint`.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        DataError: the data cannot be read or is not the data of the checkpoint.
        ExportError: the checkpoint and the bundle have different configurations.
    """
    manifest = read(bundle)
    loaded = load(checkpoint)
    try:
        config = ARCHITECTURES.read(manifest.config)
    except ValueError as error:
        raise ExportError(f"{bundle}: its configuration cannot be read: {error}") from None
    if loaded.info.config != config:
        raise ExportError(f"{checkpoint}: its configuration is not that of {bundle}")
    panel = data_of(loaded.info, data)
    scaler = _scaler(loaded.info, panel)
    if scaler.training.is_identity:
        # Without data here, the deviations come from the manifest.
        scaler = scaler.beside(manifest.scaler)
    changes = {"bounds": manifest.bounds, "scaler": scaler}
    loaded = loaded._replace(info=loaded.info.model_copy(update=changes))
    # A graph of an earlier release may read no gaps, although such a model does now.
    observed = manifest.observed_steps
    verified = _verify(loaded, panel, bundle, manifest.precision, seed=0, observed_steps=observed)
    return verified.verification


def _verify(
    checkpoint: Checkpoint,
    panel: Panel | None,
    folder: Path,
    precision: Precision,
    seed: int,
    *,
    observed_steps: int | None,
) -> Verified:
    """Verify on windows of the data, or synthetic ones without data, and on adversarial ones."""
    info, model = checkpoint
    if panel is None:
        windows = synthetic(info, _VERIFIED_WINDOWS, seed)
    else:
        windows = natural(windows_of(info, panel), _VERIFIED_WINDOWS, seed)
    few = windows.take(slice(_ADVERSARIAL_WINDOWS))
    kinds = adversarial(few, info.scaler.training, seed, observed_steps)
    within = limits(info.bounds, info.targets)
    return verify(model, info.scaler, folder, windows, kinds, precision, within)


def _write(
    checkpoint: Checkpoint,
    panel: Panel | None,
    refits: Refits | None,
    folder: Path,
    name: str,
    version: str,
    roll: int,
    precision: Precision,
    seed: int,
    origin: Origin,
) -> None:
    info, model = checkpoint
    scaler, within = info.scaler, limits(info.bounds, info.targets)
    form = inference_form(model)
    rewrites, plain = composition(model, form)
    reduce_precision(form, precision)
    graphs = trace_all(form, scaler, within)
    devices = devices_of(graphs.values())
    share_weights(graphs.values(), folder / layout.WEIGHTS)
    for file, proto in graphs.items():
        onnx.save(proto, folder / file)

    observed = info.config.observed_steps
    verified = _verify(checkpoint, panel, folder, precision, seed, observed_steps=observed)
    verification = verified.verification
    if not verification.passed:
        failed = "; ".join(
            f"{check.name}: error {check.max_error:.1e}, at most {check.tolerance:.0e} allowed"
            for check in verification.checks
            if not check.passed
        )
        raise ExportError(f"the graphs do not equal the model, nothing is written: {failed}")
    _write_probes(folder / layout.PROBES, verified)
    report, missing, test = None, "it was exported without the data it was trained on", info.test
    if panel is not None:
        graph, batch = Graph(folder / layout.FORECAST_GRAPH), windows_that_fit(model)
        example.write(folder, example_of(graph, info, panel, batch))
        calibrated = None
        try:
            split = split_of(info, panel)
            calibrated = calibrate(graph, info, panel, split, roll, batch, refits)
            offsets, report = calibrated
            calibration.write(folder, offsets)
        except UncalibratedError as error:
            missing = str(error)
        if test is not None and info.data is not None:
            found = evaluate_graph(graph, info, panel, batch, calibrated)
            test = _with_graph(test, found, _largest(info, panel), RULES[precision])
            # In a short test split with gaps some steps may have no known values.
            if found.is_whole:
                evaluation.write(folder, found)

    manifest = Manifest(
        name=name,
        version=version,
        created_at=datetime.now(UTC),
        architecture=info.config.architecture,
        config=info.config.model_dump(mode="json"),
        parameters=sum(weight.numel() for weight in model.parameters()),
        precision=precision,
        devices=devices,
        rewrites=rewrites,
        plain=plain,
        channels=info.channels,
        targets=info.targets,
        covariates=info.config.covariates,
        context=info.config.context,
        horizon=info.config.horizon,
        frequency=info.frequency,
        calendar=info.config.calendar,
        observed_steps=observed,
        scaler=scaler,
        bounds=info.bounds,
        distribution=None if model.head is None else model.head.described,
        attention=model.stages,
        margin_bound=verified.margin_bound,
        test=test,
        calibration=report,
        calibration_missing=None if report is not None or model.head is not None else missing,
        verification=verification,
        probe_tolerance=max(_PROBE_TOLERANCE, _PROBE_SLACK * verified.largest_error),
        opset=OPSET,
        libraries={library: library_version(library) for library in _LIBRARIES}
        | {"onnxruntime": Graph.library},
        files=_sums(folder),
    )
    card.write(folder, manifest, origin)
    manifest = manifest.model_copy(update={"files": _sums(folder)})
    (folder / layout.MANIFEST).write_text(
        manifest.model_dump_json(indent=2) + "\n", encoding="utf-8"
    )


def _sums(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in sorted(folder.iterdir())}


def _scaler(info: CheckpointInfo, panel: Panel | None) -> Scaler:
    """Scaler of a checkpoint, with the deviations of the data if it has none."""
    if panel is None or not info.scaler.training.is_identity:
        return info.scaler
    split = split_of(info, panel)
    rows = whole(panel) if split is None else split.train
    return info.scaler.beside(fit(panel, rows))


def _with(checkpoint: Checkpoint, panel: Panel | None, **changes: object) -> Checkpoint:
    """The checkpoint with other fields, and the accuracy that it has with them."""
    info = CheckpointInfo.model_validate(dict(checkpoint.info) | changes)
    if info == checkpoint.info:
        return checkpoint
    if panel is not None and info.test is not None and (split := split_of(info, panel)):
        windows = Windows.of(info.config, panel, split.test, info.scaler)
        test = measure_within(
            checkpoint.model, info.bounds, info.targets, info.scaler, windows, panel.frequency
        )
        test = test.model_copy(update={"overlaps": info.test.overlaps})
        info = info.model_copy(update={"test": test})
    return Checkpoint(info, checkpoint.model)


def _check_worth(info: CheckpointInfo) -> None:
    """Refuse a model trained by foretell that the baselines beat."""
    if info.training is not None and info.test is not None and is_worth_nothing(info.test):
        worth = verdict(info.test, Frequency.parse(info.frequency))
        raise ExportError(
            f"in the test split the model is {worth}; train it with other settings or on more "
            "data, or export it with --force"
        )


def _write_probes(path: Path, verified: Verified) -> None:
    """Store the best-conditioned windows with their reference forecasts."""
    probes = verified.windows.take(slice(_PROBES))
    arrays = {
        **probes.inputs,
        "forecast": verified.forecast[:_PROBES].astype(np.float32),
    }
    np.savez(path, allow_pickle=False, **arrays)


def _with_graph(
    test: TestResult, found: Evaluation, largest: NDArray[np.float64], rules: Rules
) -> TestResult:
    """The checkpoint's test result, and the graph's on the same windows."""
    assert found.counts is not None  # noqa: S101 - it was just made
    mse, mae = (mean_of_known(errors[0], found.counts) for errors in (found.mse, found.mae))
    accuracy = Accuracy(mse=mse, mae=mae)
    # Largest difference of the errors of a graph that passed its checks.
    off = rules.forecast * float(np.sqrt(np.square(np.maximum(largest, 1)).mean()))
    for kind, slack in (("mse", 2 * off * math.sqrt(test.model.mse) + off**2), ("mae", off)):
        reached, wanted = getattr(accuracy, kind), getattr(test.model, kind)
        # NaN fails this comparison.
        if not abs(reached - wanted) <= rules.accuracy * wanted + slack:
            raise ExportError(
                f"the graph's {kind.upper()} on the test split is {reached:.6g}, the checkpoint's "
                f"{wanted:.6g}; nothing is written"
            )
    return test.model_copy(update={"onnx": accuracy})


def _largest(info: CheckpointInfo, panel: Panel) -> NDArray[np.float64]:
    """Largest value of each target in standard deviations, `[targets]`."""
    columns = [panel.channels.index(name) for name in info.targets]
    each = [np.abs(table.values[:, columns]).max(axis=0) for table in panel.tables]
    found: NDArray[np.float64] = np.max(each, axis=0) / np.array(info.target_scaler.training.std)
    return found
