"""From a checkpoint to a bundle in a repository."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from importlib.metadata import version as library_version
from pathlib import Path
from uuid import uuid4

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from bundle import layout
from bundle.checksums import sha256
from bundle.frequency import Frequency
from bundle.manifest import Manifest, TestResult, Verification, read
from export.adversarial import adversarial
from export.errors import ExportError
from export.graphs import OPSET, trace
from export.rewrites import inference_form
from export.runtime import Graph
from export.serving_form import GraphKind, ServingForm
from export.verification import Verified, verify
from export.weights import share_weights
from export.windows import natural, synthetic, test_windows
from models.checkpoint import Checkpoint, CheckpointInfo, load
from models.data.csv import read_csv
from models.data.table import Table
from models.evaluation import evaluate

_GRAPHS: dict[GraphKind, str] = {
    "forecast": layout.FORECAST_GRAPH,
    "explain": layout.EXPLAIN_GRAPH,
}
_VERIFIED_WINDOWS = 128
_ADVERSARIAL_WINDOWS = 16
_PROBES = 4
# A server may run the probes on another device, whose rounding differs.
_PROBE_TOLERANCE = 1e-4
_LIBRARIES = ("foretell", "torch", "onnx", "onnxscript", "numpy")


def export_checkpoint(
    checkpoint: Path,
    repository: Path,
    *,
    name: str | None = None,
    version: str | None = None,
    data: Path | None = None,
    seed: int = 0,
) -> Path:
    """Write a verified bundle; the folder appears whole or not at all.

    Args:
        checkpoint: Folder of the trained model.
        repository: Folder of bundles; made if it does not exist.
        name: The model's name; the checkpoint folder's by default.
        version: A whole number; the one after the newest by default.
        data: The CSV to verify on; the one the checkpoint names by default. Without either the
            graphs are verified on synthetic windows, and accuracy is not measured.
        seed: Of the choice of windows.

    Returns:
        The bundle's folder, `<repository>/<name>/<version>`.

    Raises:
        BundleError: name or version are not allowed.
        CheckpointError: the checkpoint cannot be read.
        DataError: the data cannot be read or is not the data of the checkpoint.
        ExportError: the version exists, or a graph does not equal the model; nothing is written.
    """
    name = layout.check_name(name or checkpoint.resolve().name)
    version = layout.check_version(version or layout.next_version(repository, name))
    target = repository / name / version
    if target.exists():
        raise ExportError(f"{target}: exists already; bundles are never changed")
    loaded = load(checkpoint)
    table = _table(loaded, data)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A leading dot keeps the half-written bundle out of the repository's listing.
    folder = target.with_name(f".{version}.{uuid4().hex[:8]}")
    folder.mkdir()
    try:
        _write(loaded, table, folder, name, version, seed)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not any(target.parent.iterdir()):
            target.parent.rmdir()
    return target


def verify_bundle(bundle: Path, checkpoint: Path, data: Path | None = None) -> Verification:
    """Compare a written bundle with its checkpoint again.

    Args:
        bundle: Its folder.
        checkpoint: What it was exported from.
        data: As in `export_checkpoint`.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        DataError: the data cannot be read or is not the data of the checkpoint.
        ExportError: the checkpoint is of a model with other inputs.
    """
    manifest = read(bundle)
    loaded = load(checkpoint)
    if loaded.info.config.model_dump(mode="json") != manifest.config:
        raise ExportError(f"{checkpoint}: its configuration is not that of {bundle}")
    return _verify(loaded, _table(loaded, data), bundle, seed=0).verification


def _verify(checkpoint: Checkpoint, table: Table | None, folder: Path, seed: int) -> Verified:
    """Verify on windows of the test split, or synthetic ones without data, and adversarial ones."""
    info, model = checkpoint
    split = test_windows(info, table) if table is not None else None
    if split is None:
        windows = synthetic(info, _VERIFIED_WINDOWS, seed)
    else:
        windows = natural(split, _VERIFIED_WINDOWS, seed)
    few = windows.take(slice(_ADVERSARIAL_WINDOWS))
    return verify(model, info.scaler, folder, windows, adversarial(few, info.scaler, seed))


def _write(
    checkpoint: Checkpoint,
    table: Table | None,
    folder: Path,
    name: str,
    version: str,
    seed: int,
) -> None:
    info, model = checkpoint
    scaler = info.scaler
    form = inference_form(model)
    graphs = {file: trace(ServingForm(form, scaler, kind)) for kind, file in _GRAPHS.items()}
    share_weights(graphs.values(), folder / layout.WEIGHTS)
    for file, proto in graphs.items():
        onnx.save(proto, folder / file)

    verified = _verify(checkpoint, table, folder, seed)
    verification = verified.verification
    if not verification.passed:
        failed = "; ".join(
            f"{check.name}: error {check.max_error:.1e}, at most {check.tolerance:.0e} allowed"
            for check in verification.checks
            if not check.passed
        )
        raise ExportError(f"the graphs do not equal the model, nothing is written: {failed}")
    _write_probes(folder / layout.PROBES, verified)

    manifest = Manifest(
        name=name,
        version=version,
        created_at=datetime.now(UTC),
        architecture=info.config.architecture,
        config=info.config.model_dump(mode="json"),
        parameters=sum(weight.numel() for weight in model.parameters()),
        channels=info.channels,
        context=info.config.context,
        horizon=info.config.horizon,
        frequency=info.frequency,
        calendar=info.config.calendar,
        scaler=scaler,
        attention=model.stages,
        margin_bound=verified.margin_bound,
        test=_test_result(info, table, folder),
        verification=verification,
        probe_tolerance=_PROBE_TOLERANCE,
        opset=OPSET,
        libraries={library: library_version(library) for library in _LIBRARIES}
        | {"onnxruntime": Graph.library},
        files={path.name: sha256(path) for path in sorted(folder.iterdir())},
    )
    (folder / layout.MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")


def _table(checkpoint: Checkpoint, data: Path | None) -> Table | None:
    info = checkpoint.info
    frequency = Frequency.parse(info.frequency)
    if data is not None:
        return read_csv(data, channels=info.channels, frequency=frequency)
    if info.data is None:
        return None
    return info.data.read(info.channels, frequency)


def _write_probes(path: Path, verified: Verified) -> None:
    """Store the best-conditioned windows with the forecasts they must give."""
    probes = verified.windows.take(slice(_PROBES))
    arrays = {
        "history": probes.history,
        "history_calendar": probes.history_calendar,
        "future_calendar": probes.future_calendar,
        "forecast": verified.reference.forecast[:_PROBES].astype(np.float32),
    }
    present = {key: array for key, array in arrays.items() if array is not None}
    np.savez(path, allow_pickle=False, **present)


def _test_result(info: CheckpointInfo, table: Table | None, folder: Path) -> TestResult | None:
    """The checkpoint's test result, repeated through the graph on the same windows."""
    split = test_windows(info, table) if table is not None else None
    if info.test is None or split is None:
        return info.test
    graph = Graph(folder / layout.FORECAST_GRAPH)

    def predict(*inputs: torch.Tensor | None) -> NDArray[np.float32]:
        return graph.forecast(*(None if part is None else part.numpy() for part in inputs))

    accuracy = evaluate(predict, split, unit=torch.tensor(info.scaler.std, dtype=torch.float64))
    return info.test.model_copy(update={"onnx": accuracy})
