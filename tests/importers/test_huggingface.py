"""Folders of transformers: what has to be given, what is refused, and what a server forecasts."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import Tensor

from foretell.batch.chunks import Chunk
from foretell.batch.forecaster import Forecaster
from foretell.bundle.covariates import Covariate
from foretell.bundle.manifest import Manifest, read
from foretell.commands.import_ import command
from foretell.export.write import verify_bundle
from foretell.importers.convert import Imported, import_checkpoint
from foretell.importers.errors import ImporterError
from foretell.importers.saved import Request
from foretell.models.layers.paths import levels
from foretell.service.engine.intervals import Intervals
from foretell.service.forecast.requests import ForecastOptions
from tests.importers import huggingface
from tests.importers.conformance import START, request, words
from tests.importers.damage import break_file
from tests.importers.huggingface import (
    CATEGORY,
    CHANNELS,
    DATED,
    NAMED,
    SERVED,
    VARIED,
    windows,
)
from tests.service.client import Client

Served = Callable[[str], Client]


def saved(name: str, folder: Path) -> tuple[Any, Path]:
    """A model of the library, and the folder that it was saved in."""
    model = huggingface.train(*SERVED[name][:2])
    return model, huggingface.save(model, folder / "saved")


def request_for(name: str, folder: Path, given: Mapping[str, str] | None = None) -> Request:
    kind, changes, options = SERVED[name]
    model = huggingface.train(kind, changes)
    return huggingface.request_of(model, folder, options if given is None else given)


def adopt(name: str, folder: Path, given: Mapping[str, str] | None = None) -> Imported:
    return import_checkpoint(request_for(name, folder, given))


def run(name: str, folder: Path, out: Path, *options: str) -> Result:
    arguments = [*words(request_for(name, folder)), "--out", str(out), *options]
    return CliRunner().invoke(command, arguments)


def refused(name: str, folder: Path, given: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ImporterError) as error:
        adopt(name, folder, given)
    return str(error.value)


@pytest.mark.parametrize("name", ["classed", "means"])
def test_weights_of_a_pickle_are_read(tmp_path: Path, name: str) -> None:
    model, folder = saved(name, tmp_path)
    expected = adopt(name, folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.testing.assert_close(adopt(name, folder).model.state_dict(), expected, rtol=0, atol=0)


def test_provenance_of_each_argument(tmp_path: Path) -> None:
    _, folder = saved("means", tmp_path)
    config = json.loads((folder / "config.json").read_bytes())
    del config["activation_function"]
    (folder / "config.json").write_text(json.dumps(config))
    arguments = adopt("means", folder).arguments
    assert arguments["activation_function"] == ("gelu", "default of transformers")
    assert arguments["d_model"] == (16, "config.json")
    assert arguments["static_categorical"] == ("2", "--set")


AGE = "time_features age: requests do not have"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "paths",
            {},
            "num_time_features 2 and num_dynamic_real_features 0: expected 2 names in the order of "
            "the training: features of the date (second, ",
        ),
        ("paths", {"time_features": "hour"}, "--future-covariates; got 1 and 0"),
        ("paths", {"time_features": "hour", "future_covariates": "a,b"}, "got 1 and 2"),
        ("covariates", VARIED | {"future_covariates": "price"}, "expected 2 names in the order"),
        (
            "covariates",
            VARIED | {"time_features": "hour", "future_covariates": "price"},
            "--future-covariates; got 1 and 1",
        ),
        (
            "covariates",
            NAMED | {"static_covariates": "region,size"},
            "num_static_categorical_features 2 and num_static_real_features 1: "
            "--static-covariates: expected 3 names, categories first, got 2",
        ),
        (
            "covariates",
            NAMED | VARIED | {"static_real": "1"},
            "static_real: cannot be combined with --static-covariates",
        ),
        ("covariates", NAMED | {"static_covariates": "a,b,price"}, "names are not unique"),
        (
            "covariates",
            NAMED,
            "num_static_categorical_features 2: static_categorical: expected 2 whole numbers, the "
            "same for all series, got 0; --static-covariates names those that differ",
        ),
        ("paths", {"time_features": "hour,age"}, AGE),
        ("paths", {"time_features": "hour,moon"}, "time_features moon: expected some of second"),
        ("paths", {"time_features": "hour,minute_of_day"}, "time_features minute_of_day: expected"),
        ("means", {**CATEGORY, "time_features": "hour"}, "num_time_features 0 and "),
        ("means", {}, "num_static_categorical_features 1: static_categorical: expected"),
        ("means", {**CATEGORY, "static_real": "1"}, "num_static_real_features 0: "),
        ("paths", {**DATED, "num_parallel_samples": "x"}, "num_parallel_samples x: expected 0"),
        ("paths", {**DATED, "num_parallel_samples": "1"}, "num_parallel_samples 1: expected 0"),
        ("lags", {**DATED, "num_parallel_samples": "0"}, "num_parallel_samples: the distributi"),
        ("means", {"static_categorical": "x"}, "static_categorical or static_real: invalid"),
        ("means", {"static_categorical": "4"}, "static_categorical 4: model.embedder.embedders."),
        ("means", {"static_categorical": "-1"}, "weight has rows 0 to 3"),
        ("classed", {"time_features": "hour"}, "time_features: PatchTSTForPrediction reads the"),
        ("classed", NAMED, "future_covariates: PatchTSTForPrediction reads the history alone"),
    ],
)
def test_arguments_that_the_folder_lacks_are_required(
    tmp_path: Path, name: str, given: dict[str, str], message: str
) -> None:
    assert message in refused(name, saved(name, tmp_path)[1], given)


def test_covariates_have_the_names_that_are_given(tmp_path: Path) -> None:
    imported = adopt("covariates", saved("covariates", tmp_path)[1])
    covariates = imported.info.config.covariates
    assert covariates is not None
    assert [each.name for each in covariates.future] == ["price", "promo"]
    region, kind, size = covariates.static
    assert (region.name, region.categories) == ("region", ("0", "1", "2", "3", "4"))
    assert (kind.name, kind.categories, kind.other) == ("kind", ("0", "1", "2"), False)
    assert size == Covariate(name="size")
    assert imported.arguments["future_covariates"] == ("price, promo", "--future-covariates")
    assert imported.arguments["static_covariates"] == ("region, kind, size", "--static-covariates")


@pytest.mark.parametrize("flag", ["future", "static"])
def test_names_of_covariates_are_for_one_library(tmp_path: Path, flag: str) -> None:
    (tmp_path / "saved").mkdir()
    options = ["--from", "neuralforecast", f"--{flag}-covariates", "a", "--out", "x"]
    done = CliRunner().invoke(command, [str(tmp_path / "saved"), *options])
    assert f"--{flag}-covariates: only --from huggingface lacks these names" in done.stderr


DYNAMIC = "num_time_features 0 and num_dynamic_real_features 1: expected 1 names in the order"
SILU = "activation_function 'silu': Input should be 'gelu'"
SCALE = "minimum_scale 0.1: models with 1e-10 are read"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "classed",
            {"architectures": ["PatchTSTForRegression"]},
            "PatchTSTForRegression (model_type",
        ),
        ("classed", {"model_type": "bert"}, "(model_type bert) is not supported; expected"),
        ("classed", {"loss": "nll", "prediction_length": 1}, "prediction_length 1: the library it"),
        ("classed", {"distribution_output": "poisson"}, "distribution_output 'poisson': Input"),
        ("classed", {"share_projection": False}, "share_projection False: Input should be True"),
        ("classed", {"activation_function": "silu"}, SILU),
        ("classed", {"pooling_type": "median"}, "pooling_type 'median': Input should be 'mean' or"),
        ("classed", {"patch_length": 27}, "patch_length: 27 steps are not fewer than the context"),
        ("classed", {"num_attention_heads": 3}, "heads: 3 heads do not divide d_model 8"),
        ("classed", {"d_model": "8"}, "d_model '8': Input should be a valid integer"),
        ("classed", {"scaling_dim": 2}, "scaling_dim 2: Input should be 1"),
        ("classed", {"minimum_scale": 0.1}, "minimum_scale 0.1: models with 1e-05 are read"),
        ("means", {"distribution_output": "negative_binomial"}, "distribution_output 'negative_bi"),
        ("means", {"num_dynamic_real_features": 1}, DYNAMIC),
        ("covariates", {"cardinality": [5]}, "cardinality: expected 2 numbers from 1 on, got [5]"),
        ("covariates", {"cardinality": [5, 0]}, "cardinality: expected 2 numbers from 1 on"),
        ("covariates", {"cardinality": None}, "cardinality: expected 2 numbers from 1 on, got []"),
        ("means", {"loss": "mse"}, "loss 'mse': Input should be 'nll'"),
        ("means", {"lags_sequence": [0, 1]}, "lags_sequence.0 0: Input should be greater than"),
        ("means", {"lags_sequence": []}, "lags_sequence []: List should have at least 1 item"),
        ("means", {"prediction_length": None}, "prediction_length None: Input should be a valid"),
        ("means", {"prediction_length": 65}, "horizon: 65 steps, which are decoded one by one"),
        ("means", {"decoder_attention_heads": 3}, "heads: 3 heads do not divide d_model 16"),
        ("means", {"num_parallel_samples": -1}, "num_parallel_samples -1: Input should be greater"),
        ("means", {"minimum_scale": 0.1}, SCALE),
        ("counts by lags", {"distribution_output": "poisson"}, "distribution_output 'poisson': In"),
        ("counts by lags", {"label_length": 0}, "label_length 0: Input should be greater than or"),
        ("counts by lags", {"label_length": 13}, "label_length 13: more than the context of 12"),
        ("counts by lags", {"moving_average": 4}, "moving_average: expected an odd number, got 4"),
        ("counts by lags", {"autocorrelation_factor": 9}, "factor: 9 keeps 22 of the 12 lags at"),
        (
            "counts by lags",
            {"context_length": 1, "label_length": 1},
            "factor: 3 keeps 0 of the 1 lags at length 1",
        ),
        ("counts by lags", {"num_dynamic_real_features": 1}, DYNAMIC),
        ("counts by lags", {"minimum_scale": 0.1}, SCALE),
        ("counts by lags", {"embedding_dimension": [4]}, "embedders is [3], expected [4]"),
        ("counts by lags", {"embedding_dimension": None}, "embedders is [3], expected [2]"),
    ],
)
def test_config_that_is_not_read_is_refused_by_its_field(
    tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    path = saved(name, tmp_path)[1] / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
    assert message in refused(name, path.parent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "config.json: No such file or directory"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "expected an object with model_type"),
    ],
)
def test_no_config(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert message in refused("classed", tmp_path)


HEAD = "head.projection.proj.0.bias"
VALUE = "model.encoder.value_embedding.value_projection.weight"
TABLE = "model.embedder.embedders.0.weight"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("classed", {HEAD: None}, f"missing (1):\n    {HEAD} [5]"),
        ("classed", {"head.scale": torch.ones(3)}, "unexpected (1):\n    head.scale [3]"),
        ("classed", {HEAD: torch.ones(4)}, f"{HEAD} is [4], expected [5]"),
        ("classed", {HEAD: torch.full((5,), torch.nan)}, f"{HEAD} has values that are not finite"),
        ("classed", "no weights", "neither model.safetensors nor pytorch_model.bin is there"),
        ("classed", "cut off", "model.safetensors: damaged or cut off"),
        ("classed", "pickle that runs code", "refused: loading it would call posix.mkdir"),
        ("means", {VALUE: None}, f"missing (1):\n    {VALUE}"),
        ("means", {VALUE: torch.ones(16, 5)}, "value_projection.weight is [16, 5], expected [16, "),
        (
            "means",
            {TABLE: torch.ones(4, 2, dtype=torch.int8)},
            f"{TABLE} is of whole numbers; save",
        ),
        ("means", {TABLE: None}, f"{TABLE}: no table of static features"),
        ("counts by lags", {TABLE: None}, f"{TABLE}: no table of static features"),
        ("counts by lags", {VALUE: None}, f"missing (1):\n    {VALUE}"),
    ],
)
def test_damaged_folder_is_refused_and_nothing_written(
    tmp_path: Path, name: str, changes: dict[str, Tensor | None] | str, message: str
) -> None:
    model, folder = saved(name, tmp_path)
    before = {path.name for path in folder.iterdir()}
    if isinstance(changes, str):
        break_file(folder / "model.safetensors", changes)
    else:
        state = {**model.state_dict(), **changes}
        kept = {key: each for key, each in state.items() if each is not None}
        save_file(kept, folder / "model.safetensors")
    done = run(
        name, folder, tmp_path / "out", "--repository", str(tmp_path / "models"), "--name", "x"
    )
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"saved"}
    assert {path.name for path in folder.iterdir()} <= before | {"pytorch_model.bin"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("classed", ["--channels", "load,wind"], "--channels: expected 3 names, got 2"),
        (
            "classed",
            ["--mean", "0,0,0", "--std", "1,1,1"],
            "--no-scaler: cannot be combined with --mean",
        ),
        ("classed", ["--set=seq_len=27"], "seq_len: is read from the folder, and cannot be given"),
        ("classed", ["--arch", "patchtst"], "arch: is read from the folder, and cannot be given"),
        ("classed", ["--alias", "x"], "--alias x: "),
        ("classed", ["--frequency", "x"], "--frequency: "),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, name: str, options: list[str], message: str
) -> None:
    done = run(name, saved(name, tmp_path)[1], tmp_path / "out", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_data_and_scale_are_required(tmp_path: Path) -> None:
    hours = np.datetime64("2026-01-01T00", "h") + np.arange(200)
    rows = [f"{hour},{i % 24},{i % 7},{i % 5}" for i, hour in enumerate(hours)]
    table = tmp_path / "train.csv"
    table.write_text("\n".join([",".join(("date", *CHANNELS)), *rows, ""]))
    folder = str(saved("classed", tmp_path)[1])
    start = ["--from", "huggingface", "--out", str(tmp_path / "out")]
    for options, message in (
        ([], "--channels, --frequency, --mean and --std (or --no-scaler)"),
        (["--data", str(table)], "--mean and --std, or --no-scaler"),
        (["--data", str(table), "--no-scaler"], "split: the training rows are unknown"),
        (["--data", str(table), "--no-scaler", "--channels", "sun"], "1 channels (sun), but the"),
    ):
        done = CliRunner().invoke(command, [folder, *start, *options])
        assert done.exit_code == 2
        assert message in done.stderr
    options = ["--data", str(table), "--no-scaler", "--set=split=0.6,0.2,0.2"]
    done = CliRunner().invoke(command, [folder, *start, *options])
    assert done.exit_code == 0, done.output
    assert "scaler" in done.stdout
    assert "--no-scaler" in done.stdout


def test_counts_with_a_scaler_are_refused(tmp_path: Path) -> None:
    scaled = ["--mean", "1,1,1", "--std", "1,1,1", "--out", str(tmp_path / "out")]
    given = words(replace(request_for("counts", saved("counts", tmp_path)[1]), unscaled=False))
    done = CliRunner().invoke(command, [*given, *scaled])
    assert done.exit_code == 2
    assert "negative-binomial: counts are trained without a scaler" in done.stderr


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("folder", [], "is a folder: name the library with --from huggingface"),
        ("file", ["--from", "huggingface"], "is not a folder, which --from huggingface reads"),
        ("file", ["--from", "neuralforecast"], "is not a folder, which --from neuralforecast"),
        (
            "file",
            ["--from", "tslib", "--set=time_features=hour"],
            "time_features: only for folders with --from huggingface",
        ),
    ],
)
def test_source_requires_a_folder_or_a_file(
    tmp_path: Path, path: str, options: list[str], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    arguments = [str(tmp_path / path), *options, "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def manifest_of(client: Client) -> Manifest:
    return read(client.settings.models / "model" / "1")


def series(context: int, channels: int = 3, count: int = 1, **options: Any) -> dict[str, Any]:
    """A request for forecasts of windows that are nowhere constant."""
    return request(windows(context, channels)[5 : 5 + count].numpy(), **options)


@pytest.mark.parametrize(
    ("name", "decoder", "source"), [("paths", (0, 5), 12), ("lags", (-4, 15), 15)]
)
def test_manifest_of_models_of_lags(
    served: Served, name: str, decoder: tuple[int, int], source: int
) -> None:
    manifest = manifest_of(served(f"huggingface {name}"))
    assert {
        stage.name: (stage.query.start, stage.query.length, stage.key.start, stage.key.length)
        for stage in manifest.attention
    } == {
        "encoder.0.self": (-12, 12, -12, 12),
        "decoder.0.self": decoder * 2,
        "decoder.0.cross": (*decoder, -12, source),
    }
    form = "circulant" if name == "lags" else "dense"
    assert {stage.form for stage in manifest.attention} == {form}
    assert manifest.calendar is not None
    assert manifest.calendar.features == ("hour", "day_of_week")
    assert manifest.devices == ("cuda", "cpu")
    assert (manifest.context, manifest.observed_steps) == (21, 12)
    assert (manifest.margin_bound is not None) == (name == "lags")
    assert manifest.distribution is not None
    if name == "paths":
        assert manifest.distribution.levels == levels(huggingface.PATHS)
    else:
        assert manifest.distribution.family == "student-t"


def test_windows_with_gaps_are_verified(served: Served, tmp_path: Path) -> None:
    client = served("huggingface classed")
    manifest = manifest_of(client)
    assert manifest.observed_steps == 27
    checks = {check.name: check.windows for check in manifest.verification.checks}
    assert checks["forecast.onnx, gaps windows"] == 16
    # Bundles of earlier versions lack `observed_steps`.
    bundle = shutil.copytree(client.settings.models / "model" / "1", tmp_path / "1")
    fields = json.loads((bundle / "manifest.json").read_bytes())
    del fields["observed_steps"]
    (bundle / "manifest.json").write_text(json.dumps(fields))
    found = verify_bundle(bundle, Path(f"{client.settings.models} out"))
    assert found.passed
    assert "forecast.onnx, gaps windows" not in {check.name for check in found.checks}


def test_errors_correct_no_distributions(served: Served) -> None:
    body = series(90, quantiles=[0.5], calibration="history")
    error = served("huggingface classed").error(body)
    message = "of the student-t distributions that it forecasts, which no errors correct"
    assert message in error["message"]


def test_backtests_and_tables_have_the_quantiles_of_distributions(served: Served) -> None:
    client = served("huggingface classed")
    body = {"model": "model", **series(60, quantiles=[0.1, 0.9])}
    answer = client.request("POST", "/backtest", json=body)
    assert answer.status_code == 200, answer.text
    channel = answer.json()["outputs"][0]["content"][0]["channels"][0]
    assert 0 < channel["intervals"][0]["coverage"] <= 1

    bundle = client.settings.models / "model" / "1"
    forecaster = Forecaster(bundle, ForecastOptions(quantiles=[0.1, 0.9]), "cpu")
    rows = windows(27, 3)[5].double().numpy()
    columns = {name: rows[:, at] for at, name in enumerate(CHANNELS)}
    times = np.datetime64(START, "us") + np.timedelta64(1, "h") * np.arange(27)
    table, bounds = pa.table({"ds": times, **columns}), np.array([0, 27])
    [found], rejected = forecaster.forecast(
        Chunk(table, pa.array(["a"]), bounds[:1], bounds[1:], 0)
    )
    forecaster.close()
    assert not rejected
    quantiles = client.first(series(27, quantiles=[0.1, 0.9]))["quantiles"]
    for layer, level in zip(found.layers[1:], ("0.1", "0.9"), strict=True):
        np.testing.assert_allclose(layer[0], quantiles[level], rtol=1e-5)


def test_no_thread_searches_for_many_counts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served("huggingface counts")
    monkeypatch.setattr("foretell.service.engine.intervals._MOST_SEARCHED", 2 * 5 * 3 * 2)
    threads, search = [], Intervals.quantiles

    def watched(self, *arguments):
        threads.append(threading.current_thread().name)
        return search(self, *arguments)

    monkeypatch.setattr(Intervals, "quantiles", watched)
    assert client.forecast(series(27, count=2, quantiles=[0.1, 0.9])).status_code == 200
    assert threads[0].startswith("offload")
    error = client.error(series(27, count=3, quantiles=[0.1, 0.9]))
    assert error["param"] == "options.quantiles"
    message = "would hold 90 quantiles of counts, which are searched for, and may hold 60"
    assert message in error["message"]
    body = {"model": "model", **series(60, count=2, quantiles=[0.1, 0.9], origins=2)}
    answer = client.request("POST", "/backtest", json=body)
    assert "2 inputs leave room for 1 origins of each, got 2" in answer.text


@pytest.mark.parametrize(("name", "has"), [("crossed", False), ("classed", True), ("counts", True)])
def test_card_has_the_flag_quantiles(served: Served, name: str, has: bool) -> None:
    (card,) = served(f"huggingface {name}").get("/models").json()
    assert card["quantiles"] == has
