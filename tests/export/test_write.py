import copy
import json
import shutil

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from foretell.bundle import checksums, layout
from foretell.bundle.bounds import Bound
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import read
from foretell.bundle.measure import relative_error
from foretell.bundle.results import Accuracy
from foretell.data import reading
from foretell.data.errors import DataError
from foretell.export import write
from foretell.export.data_windows import synthetic
from foretell.export.errors import ExportError
from foretell.export.graphs import trace_all
from foretell.export.rewrites import inference_form
from foretell.export.rules import RULES
from foretell.export.runtime import Graph
from foretell.models import batches
from foretell.models.checkpoint import TrainingRecord, load, save
from tests.checkpoints import CONFIGS, checkpoint_of


def broken(*arguments):
    raise ExportError("broken")


@pytest.fixture(scope="module")
def graphs(checkpoints):
    info, model = load(checkpoints["patchtst"])
    return trace_all(inference_form(model), info.scaler)


@pytest.fixture
def traced(graphs, monkeypatch):
    """Exports of the PatchTST reuse graphs that were traced once."""
    monkeypatch.setattr(write, "trace_all", lambda *_: copy.deepcopy(graphs))


@pytest.fixture(scope="module")
def half(checkpoints, tmp_path_factory):
    """The bundle of the PatchTST in float16."""
    folder = tmp_path_factory.mktemp("half")
    return write.export_checkpoint(checkpoints["patchtst"], folder, precision="float16")


@pytest.mark.parametrize("name", CONFIGS)
def test_bundle(bundles, checkpoints, name):
    folder = bundles[name]
    assert (folder.parent.name, folder.name) == (name, "1")
    manifest = read(folder)
    checksums.check(folder, manifest.files)
    assert {path.name for path in folder.iterdir()} == {*manifest.files, layout.MANIFEST}
    info, model = load(checkpoints[name])
    assert manifest.channels == ("load", "price", "wind")
    assert manifest.config == info.config.model_dump(mode="json")
    assert manifest.attention == model.stages
    assert manifest.scaler == info.scaler
    assert manifest.verification.passed
    assert manifest.libraries["torch"]


@pytest.mark.parametrize("name", CONFIGS)
def test_accuracy_is_repeated_through_the_graph(bundles, name):
    test = read(bundles[name]).test
    assert test.onnx.mse == pytest.approx(test.model.mse, rel=1e-5)
    assert test.onnx.mae == pytest.approx(test.model.mae, rel=1e-5)


def test_margin_bound_marks_ill_conditioned_windows(bundles, checkpoints, data):
    assert read(bundles["patchtst"]).margin_bound is None
    bound = read(bundles["autoformer"]).margin_bound
    assert 0 < bound < 1e-3
    info = load(checkpoints["autoformer"]).info
    windows = synthetic(info, 32, seed=4)
    ties = np.tile(windows.history[:, :4], (1, 12, 1))
    graph = Graph(bundles["autoformer"] / layout.FORECAST_GRAPH)
    zeros = {name: np.zeros_like(part) for name, part in windows.inputs.items()}
    assert (graph.run(zeros | {"history": windows.history})["margin"] > bound).mean() > 0.9
    assert (graph.run(zeros | {"history": ties})["margin"] < bound).all()


def test_probes(bundles):
    manifest = read(bundles["autoformer"])
    with np.load(bundles["autoformer"] / layout.PROBES) as probes:
        assert probes["history"].shape == (4, 48, 3)
        assert probes["future_calendar"].shape == (4, 12, 4)
        assert probes["forecast"].shape == (4, manifest.horizon, 3)
        assert probes["forecast"].dtype == np.float32


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision(checkpoints, bundles, half, tmp_path, precision):
    folder = half
    if precision != "float16":
        folder = write.export_checkpoint(checkpoints["patchtst"], tmp_path, precision=precision)
    manifest, exact = read(folder), read(bundles["patchtst"])
    assert (manifest.precision, exact.precision) == (precision, "float32")
    assert manifest.verification.emulates == precision
    assert exact.verification.emulates is None
    assert 1e-4 == exact.probe_tolerance < manifest.probe_tolerance
    assert manifest.probe_tolerance <= 4 * RULES[precision].forecast
    with np.load(folder / layout.PROBES) as probes:
        history, expected = probes["history"], probes["forecast"]
    error = relative_error(
        Graph(folder / layout.FORECAST_GRAPH).forecast({"history": history}),
        expected,
        np.array(manifest.scaler.std),
    )
    assert 1e-5 < error.max() <= RULES[precision].forecast
    assert manifest.test.onnx.mse == pytest.approx(manifest.test.model.mse, rel=1e-2)
    assert manifest.test.onnx != exact.test.onnx


def test_cpu_runs_float16_graphs(half):
    manifest = read(half)
    session = onnxruntime.InferenceSession(
        half / layout.FORECAST_GRAPH, providers=["CPUExecutionProvider"]
    )
    with np.load(half / layout.PROBES) as probes:
        found = session.run(["forecast"], {"history": probes["history"]})[0]
        error = relative_error(found, probes["forecast"], np.array(manifest.scaler.std))
    assert error.max() <= manifest.probe_tolerance


def test_export_writes_the_next_version_and_changes_no_other(
    checkpoints, bundles, traced, tmp_path
):
    repository = tmp_path / "repository"
    shutil.copytree(bundles["patchtst"], repository / "patchtst" / "4")
    second = write.export_checkpoint(checkpoints["patchtst"], repository)
    assert second == repository / "patchtst" / "5"
    with pytest.raises(BundleError, match="exists already"):
        write.export_checkpoint(checkpoints["patchtst"], repository, version="5")


def test_a_model_without_its_data_is_verified_on_synthetic_windows(tmp_path):
    checkpoint = checkpoint_of(CONFIGS["patchtst"], None, tmp_path / "checkpoint")
    manifest = read(write.export_checkpoint(checkpoint, tmp_path, name="bare"))
    assert manifest.test is None
    assert not {layout.EXAMPLE, layout.EVALUATION} & manifest.files.keys()
    names = [check.name for check in manifest.verification.checks]
    assert any("synthetic" in name for name in names)
    assert not any("natural" in name for name in names)


def test_no_batch_is_larger_than_fits(checkpoints, traced, tmp_path, monkeypatch):
    sizes = []
    run = Graph.run

    def counted(graph, inputs):
        if graph.outputs == ["forecast"]:
            sizes.append(len(inputs["history"]))
        return run(graph, inputs)

    monkeypatch.setattr(Graph, "run", counted)
    monkeypatch.setattr(batches, "LIMIT", 1)
    manifest = read(write.export_checkpoint(checkpoints["patchtst"], tmp_path))
    # Batches of three are always compared with single windows; calibration and test split run one
    # window at a time.
    assert set(sizes) == {1, 2, 3}
    assert sum(size > 1 for size in sizes) == -(-128 // 3)
    assert manifest.verification.passed
    assert manifest.calibration is not None


def trained_of(folder, target, mse):
    """Write a checkpoint like one of a training with this error in the test split."""
    info, model = load(folder)
    record = TrainingRecord(
        seed=0,
        epochs=1,
        best_epoch=1,
        validation_loss=1.0,
        learning_rate=0.01,
        batch_size=32,
        precision="float32",
        device="cpu",
        libraries={},
    )
    test = info.test.model_copy(update={"model": Accuracy(mse=mse, mae=mse)})
    save(target, model, info.model_copy(update={"training": record, "test": test}))
    return target


def test_model_worse_than_both_baselines_needs_anyway(checkpoints, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(write, "_write", lambda *arguments: written.append(arguments))
    bad = trained_of(checkpoints["patchtst"], tmp_path / "bad", 1e3)
    with pytest.raises(ExportError, match=r"no better than repeating the last day .*--force$"):
        write.export_checkpoint(bad, tmp_path / "repository")
    assert not (tmp_path / "repository").exists()
    assert not written
    write.export_checkpoint(bad, tmp_path / "repository", anyway=True)
    good = trained_of(checkpoints["patchtst"], tmp_path / "good", 1e-3)
    write.export_checkpoint(good, tmp_path / "repository")
    # An imported model that is no better gets a warning, not a refusal.
    info, model = load(bad)
    save(tmp_path / "theirs", model, info.model_copy(update={"training": None}))
    write.export_checkpoint(tmp_path / "theirs", tmp_path / "repository")
    assert len(written) == 3
    # The error is that of the model that is written.
    monkeypatch.setattr(write, "_with", lambda *_, **__: load(good))
    write.export_checkpoint(bad, tmp_path / "repository", version="9", bounds={})
    assert len(written) == 4


def test_a_graph_that_differs_leaves_nothing(checkpoints, tmp_path, monkeypatch):
    form = write.inference_form

    def changed_form(model):
        changed = form(model)
        for parameter in changed.parameters():
            parameter.data *= 1.01
        return changed

    monkeypatch.setattr(write, "inference_form", changed_form)
    with pytest.raises(ExportError, match=r"do not equal the model.*batch 1"):
        write.export_checkpoint(checkpoints["patchtst"], tmp_path / "repository")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_folders_that_were_there(checkpoints, tmp_path, monkeypatch):
    (tmp_path / "repository").mkdir()
    monkeypatch.setattr(write, "_write", broken)
    with pytest.raises(ExportError, match="broken"):
        write.export_checkpoint(checkpoints["patchtst"], tmp_path / "repository" / "deep")
    assert [entry.name for entry in tmp_path.rglob("*")] == ["repository"]


def test_a_version_that_another_export_writes_meanwhile_is_kept(checkpoints, tmp_path, monkeypatch):
    other = tmp_path / "patchtst" / "1" / layout.MANIFEST

    def overtaken(*arguments):
        other.parent.mkdir()
        other.write_text("theirs")

    monkeypatch.setattr(write, "_write", overtaken)
    with pytest.raises(BundleError, match="patchtst/1: exists already"):
        write.export_checkpoint(checkpoints["patchtst"], tmp_path)
    assert [entry.name for entry in (tmp_path / "patchtst").iterdir()] == ["1"]
    assert other.read_text() == "theirs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"name": "../x"}, "model name"), ({"name": "a", "version": "0"}, "version")],
)
def test_bad_names(checkpoints, tmp_path, arguments, message):
    with pytest.raises(BundleError, match=message):
        write.export_checkpoint(checkpoints["patchtst"], tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_changed_data_is_refused(data, tmp_path):
    copy = tmp_path / "energy.csv"
    shutil.copy(data, copy)
    checkpoint = checkpoint_of(CONFIGS["patchtst"], copy, tmp_path / "checkpoint")
    copy.write_text(copy.read_text().replace("2024-01-01 00:00:00,", "2024-01-01 00:00:00,1"))
    with pytest.raises(DataError, match="changed"):
        write.export_checkpoint(checkpoint, tmp_path / "repository")
    assert not (tmp_path / "repository").exists()


def test_a_moved_copy_of_the_data(data, traced, tmp_path):
    original, moved = tmp_path / "energy.csv", tmp_path / "moved.csv"
    # Two columns of dates: only the checkpoint names the column of timestamps.
    table = pd.read_csv(data)
    table["date"], table["when"] = "2024-01-01", table["date"]
    table.to_csv(original, index=False)
    wanted = reading.Reading(time_column=("when",), channels=("load", "price", "wind"))
    panel = reading.read(original, wanted)
    checkpoint = checkpoint_of(CONFIGS["patchtst"], panel, tmp_path / "checkpoint")
    original.rename(moved)
    with pytest.raises(DataError, match=r"energy\.csv: missing; .*--data takes a copy"):
        write.export_checkpoint(checkpoint, tmp_path / "repository")
    test = read(write.export_checkpoint(checkpoint, tmp_path / "repository", data=moved)).test
    assert test.onnx.mse == pytest.approx(test.model.mse, rel=1e-5)


def test_other_data_than_the_checkpoints_is_refused(data, checkpoints, bundles, tmp_path):
    other = tmp_path / "other.csv"
    shutil.copy(data, other)
    with other.open("a") as file:
        file.write("2024-01-30 04:00:00,900,40,0\n")
    with pytest.raises(DataError, match=r"other\.csv: changed, or not .*energy\.csv was "):
        write.export_checkpoint(checkpoints["patchtst"], tmp_path / "repository", data=other)
    with pytest.raises(DataError, match=r"other\.csv: changed, or not "):
        write.verify_bundle(bundles["patchtst"], checkpoints["patchtst"], other)


def test_data_without_a_recorded_source_only_verify(data, checkpoints, traced, tmp_path):
    info, model = load(checkpoints["patchtst"])
    save(tmp_path / "bare", model, info.model_copy(update={"data": None, "test": None}))
    manifest = read(write.export_checkpoint(tmp_path / "bare", tmp_path, name="a", data=data))
    assert manifest.test is None
    assert any("natural" in check.name for check in manifest.verification.checks)


@pytest.mark.parametrize("kind", ["mse", "mae"])
def test_another_accuracy_than_the_checkpoints_is_an_error(checkpoints, traced, tmp_path, kind):
    info, model = load(checkpoints["patchtst"])
    wrong = {kind: getattr(info.test.model, kind) * 1.002}
    test = info.test.model_copy(update={"model": info.test.model.model_copy(update=wrong)})
    save(tmp_path / "wrong", model, info.model_copy(update={"test": test}))
    with pytest.raises(ExportError, match=f"the graph's {kind.upper()} on the test split is"):
        write.export_checkpoint(tmp_path / "wrong", tmp_path / "repository")
    assert not (tmp_path / "repository").exists()


def test_bundle_of_an_unknown_architecture_is_refused(bundles, checkpoints, tmp_path):
    """A server accepts such a bundle."""
    bundle = shutil.copytree(bundles["patchtst"], tmp_path / "bundle")
    manifest = json.loads((bundle / layout.MANIFEST).read_text())
    manifest["config"]["architecture"] = "tomorrow"
    (bundle / layout.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ExportError, match=r"cannot be read: expected one of .*'tomorrow'"):
        write.verify_bundle(bundle, checkpoints["patchtst"])


def test_verify_bundle(bundles, checkpoints):
    assert write.verify_bundle(bundles["transformer"], checkpoints["transformer"]).passed
    with pytest.raises(ExportError, match="configuration"):
        write.verify_bundle(bundles["transformer"], checkpoints["patchtst"])


def test_bounds_are_stored_and_verified(checkpoints, bundles, data, tmp_path):
    low, high = (float(end(reading.read(data).tables[0].values[:, 2])) for end in (np.min, np.max))
    bounds = {"wind": Bound(low=low, high=high)}
    folder = write.export_checkpoint(checkpoints["autoformer"], tmp_path, bounds=bounds)
    manifest, free = read(folder), read(bundles["autoformer"])
    assert (manifest.bounds, free.bounds) == (bounds, {})
    assert manifest.verification.checks[-1].name == f"{layout.EXPLAIN_GRAPH}, bounds"
    # The accuracy is that of clipped forecasts; baselines are not clipped.
    assert manifest.test.model.mse < free.test.model.mse
    assert manifest.test.onnx.mse == pytest.approx(manifest.test.model.mse, rel=1e-5)
    assert manifest.test.last_value == free.test.last_value
    folders = (bundles["autoformer"], folder)
    before, after = (np.load(each / layout.PROBES)["forecast"] for each in folders)
    expected = np.clip(before[..., 2], np.float32(low), np.float32(high))
    assert (expected != before[..., 2]).any()
    np.testing.assert_allclose(after[..., 2], expected, rtol=1e-5)
    np.testing.assert_array_equal(after[..., :2], before[..., :2])
    assert write.verify_bundle(folder, checkpoints["autoformer"]).passed


def test_bounds_that_the_data_exceed_write_nothing(checkpoints, tmp_path):
    for bounds, message in (
        ({"wind": Bound(low=0)}, r"energy\.csv: channel 'wind': \d+ of 700 rows are below"),
        ({"winds": Bound(low=0)}, "bounds: no channel 'winds' is forecast; did you mean 'wind'"),
    ):
        with pytest.raises(DataError, match=message):
            write.export_checkpoint(checkpoints["patchtst"], tmp_path, bounds=bounds)
    assert list(tmp_path.iterdir()) == []
