"""Models that transformers itself trained and saved: all in one file, for it is slow to load."""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Iterator
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
from foretell.bundle.manifest import read
from foretell.commands.import_ import command
from foretell.export.write import verify_bundle
from foretell.importers.convert import Request
from foretell.importers.errors import ImporterError
from foretell.importers.folders import import_folder
from foretell.service.engine.intervals import Intervals
from foretell.service.forecast.requests import ForecastOptions
from tests.importers.damage import break_file
from tests.service.client import Client

transformers = pytest.importorskip("transformers", reason="the library that saves the folders")

CONTEXT, HORIZON, CHANNELS = 27, 5, ("load", "wind", "sun")
SIZES = {
    "num_input_channels": len(CHANNELS),
    "context_length": CONTEXT,
    "prediction_length": HORIZON,
    "patch_length": 6,
    "patch_stride": 4,
    "d_model": 8,
    "num_attention_heads": 2,
    "ffn_dim": 12,
    "num_hidden_layers": 2,
}
# Those that are exported and served.
SERVED: dict[str, dict[str, Any]] = {
    "crossed": {
        "channel_attention": True,
        "pooling_type": "max",
        "norm_type": "layernorm",
        "pre_norm": False,
        "scaling": None,
        "num_hidden_layers": 1,
    },
    "classed": {
        "num_hidden_layers": 1,
        "use_cls_token": True,
        "channel_attention": True,
        "share_embedding": False,
        "loss": "nll",
    },
    "counts": {
        "distribution_output": "negative_binomial",
        "num_hidden_layers": 1,
        "loss": "nll",
        "scaling": "mean",
    },
}
FURTHER: dict[str, dict[str, Any]] = {
    "plain": {},
    "crossed twice": {"channel_attention": True, "use_cls_token": True, "pre_norm": False},
    "normal": {"loss": "nll", "distribution_output": "normal", "pooling_type": None},
    "flat": {"pooling_type": None, "scaling": None, "bias": False, "activation_function": "relu"},
    "random": {"positional_encoding_type": "random", "scaling": True, "norm_eps": 1e-3},
    "unknown scaling": {"scaling": "robust", "pre_norm": False, "use_cls_token": True},
    "one channel": {"num_input_channels": 1, "channel_attention": True, "norm_type": "layernorm"},
    "even": {"patch_length": 3, "patch_stride": 3, "pooling_type": "max"},
}
GIVEN = [
    "--from",
    "huggingface",
    "--frequency",
    "h",
    "--unscaled",
    "--channels",
    ",".join(CHANNELS),
]


def train(**changes: Any) -> Any:
    """A model after a few steps of the library's own loss."""
    torch.manual_seed(0)
    config = transformers.PatchTSTConfig(**{**SIZES, **changes})
    model = transformers.PatchTSTForPrediction(config)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        rows = walks(8, CONTEXT + config.prediction_length, config.num_input_channels)
        rows = rows.abs().round() if config.distribution_output == "negative_binomial" else rows
        loss = model(rows[:, :CONTEXT], future_values=rows[:, CONTEXT:]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def walks(count: int, steps: int, channels: int) -> Tensor:
    return 10 + torch.randn(count, steps, channels).cumsum(dim=1)


def outcome(model: Any, history: Tensor) -> tuple[Tensor, Any]:
    """The library's mean of windows and their distributions, or none; NaN is missing."""
    with torch.inference_mode():
        found = model(history.nan_to_num(), past_observed_mask=~history.isnan())
        if model.distribution_output is None:
            return found.prediction_outputs, None
        # The library adds to the logits of a negative binomial in place.
        parameters = tuple(one.clone() for one in found.prediction_outputs)
        drawn = model.distribution_output.distribution(parameters, found.loc, found.scale)
        return drawn.mean, drawn


def windows(channels: int = 3) -> Tensor:
    """Sixteen, with a constant one, zeros, and a channel that is missing but for one value."""
    torch.manual_seed(1)
    found = walks(16, CONTEXT, channels)
    found[0], found[1] = 0, 3
    found[2, 1:, 0] = found[2, 0, 0]
    found[3] *= 1e4
    return found


def lacking(history: Tensor) -> Tensor:
    """Windows `[16, steps, …]` that lack values: at both ends, in stretches and single ones."""
    found, steps = history.clone(), history.shape[1]
    found[1, 0] = found[2, -1] = found[3, 4:9] = torch.nan
    found[4, : steps // 2] = found[5, -4:] = torch.nan
    found[6, torch.arange(steps) != steps - 5] = torch.nan
    torch.manual_seed(2)
    found[7:][torch.rand(found[7:].shape) < 0.3] = torch.nan
    return found


def save(model: Any, folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.utils.logging, "_tqdm_active", False)
        model.save_pretrained(folder)
    return folder


def adopt(folder: Path, channels: tuple[str, ...] = CHANNELS) -> Any:
    request = Request(
        file=folder, source="huggingface", channels=channels, frequency="h", unscaled=True
    )
    return import_folder(request)


def run(folder: Path, out: Path, *options: str) -> Result:
    arguments = [str(folder), *GIVEN, "--out", str(out), *options]
    return CliRunner().invoke(command, arguments)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: train(**changes) for name, changes in SERVED.items()}


@pytest.fixture(scope="module")
def folders(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    return {name: save(model, root / name) for name, model in models.items()}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("bundles")
    for name, folder in folders.items():
        done = run(folder, root / "out" / name, "--to", str(root / "models"))
        assert done.exit_code == 0, done.output
    with Client(root / "models") as client:
        yield client


def listed(rows: Tensor) -> list[Any]:
    """Rows as JSON has them."""
    return [[None if math.isnan(value) else value for value in row] for row in rows.tolist()]


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize("name", SERVED)
def test_the_server_forecasts_what_the_library_does(
    client: Client, models: dict[str, Any], name: str, missing: str
) -> None:
    history = windows() if missing == "error" else lacking(windows())
    expected = outcome(models[name], history)[0].numpy()
    body = {
        "model": name,
        "inputs": [
            {"series": listed(rows), "start_timestamp": "2026-01-01T00:00:00"} for rows in history
        ],
        "options": {"missing": missing},
    }
    answer = client.forecast(body)
    assert answer.status_code == 200, answer.text
    contents = [one["content"][0] for one in answer.json()["outputs"]]
    counts = [sum(one.get("masked", {}).values()) for one in contents]
    assert counts == history.isnan().sum(dim=(1, 2)).tolist()
    for rows, row in zip(contents, expected, strict=True):
        np.testing.assert_allclose(
            rows["mean_forecast"], row, rtol=1e-5, atol=1e-5 * np.abs(row).max(initial=1e-3)
        )


@pytest.mark.parametrize("name", FURTHER)
def test_every_configuration_forecasts_the_same(tmp_path: Path, name: str) -> None:
    model = train(**FURTHER[name])
    channels = CHANNELS[: model.config.num_input_channels]
    history = torch.cat([windows(len(channels)), lacking(windows(len(channels)))])
    found = adopt(save(model, tmp_path / "saved"), channels)
    expected, drawn = outcome(model, history)
    with torch.inference_mode():
        explained = found.model.explain(history)
    torch.testing.assert_close(explained.forecast, expected, rtol=1e-5, atol=1e-5)
    if drawn is not None:
        _, scale = explained.distribution.unbind(-1)
        torch.testing.assert_close(scale, drawn.stddev, rtol=1e-5, atol=1e-5)


def test_weights_of_a_pickle_are_read(
    folders: dict[str, Path], models: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((folders["classed"] / "config.json").read_bytes())
    torch.save(models["classed"].state_dict(), tmp_path / "pytorch_model.bin")
    one, other = adopt(tmp_path).model, adopt(folders["classed"]).model
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_says_where_each_argument_comes_from(
    folders: dict[str, Path], models: dict[str, Any], tmp_path: Path
) -> None:
    found = json.loads((folders["classed"] / "config.json").read_bytes())
    del found["norm_eps"]
    (tmp_path / "config.json").write_text(json.dumps(found))
    torch.save(models["classed"].state_dict(), tmp_path / "pytorch_model.bin")
    arguments = adopt(tmp_path).arguments
    assert arguments["norm_eps"] == (1e-5, "default of transformers")
    assert arguments["d_model"] == (8, "config.json")


def test_the_evidence_is_of_patches_and_channels(client: Client) -> None:
    body = {
        "model": "classed",
        "inputs": [{"series": windows()[5].tolist(), "start_timestamp": "2026-01-01T00:00:00"}],
        "options": {"attention": {}},
    }
    stages = [one["name"] for one in client.first(body)["attention"]]
    assert stages == ["encoder.0.self", "encoder.0.channels"]


def asked(name: str, history: Tensor, **options: Any) -> dict[str, Any]:
    inputs = [{"series": listed(rows)} for rows in history]
    return {"model": name, "inputs": inputs, "options": options}


def test_quantiles_are_those_of_the_library(client: Client, models: dict[str, Any]) -> None:
    stats = pytest.importorskip("scipy.stats", reason="what quantiles are compared with")
    history, levels = lacking(windows()), (0.025, 0.3, 0.5, 0.9)
    for name in ("classed", "counts"):
        _, drawn = outcome(models[name], history)
        if name == "classed":
            base = drawn.base_dist.base_dist
            df, loc, scale = (one.numpy().astype(float) for one in (base.df, base.loc, base.scale))
            known = stats.t(df, loc, scale)
        else:
            base = drawn.base_dist
            count, logits = (one.numpy().astype(float) for one in (base.total_count, base.logits))
            known = stats.nbinom(count, 1 / (1 + np.exp(logits)))
        answer = client.forecast(asked(name, history, quantiles=levels, missing="mask"))
        assert answer.status_code == 200, answer.text
        contents = [one["content"][0]["quantiles"] for one in answer.json()["outputs"]]
        for level in levels:
            found = np.array([one[str(level)] for one in contents])
            wanted = known.ppf(level)
            if name == "classed":
                wanted = wanted * drawn.scale.numpy() + drawn.loc.numpy()
                largest = np.abs(wanted).max(axis=(1, 2), keepdims=True)
                np.testing.assert_allclose(found / largest, wanted / largest, rtol=0, atol=1e-5)
            else:
                # Where rounding of the parameters decides, a count may be the next.
                assert (np.abs(found - wanted) <= 1e-5 * wanted + 1).all()
                assert (found == wanted).mean() > 0.95


def test_windows_with_gaps_are_verified(client: Client) -> None:
    manifest = read(client.settings.models / "classed" / "1")
    assert manifest.observed_steps == CONTEXT
    checks = {check.name: check.windows for check in manifest.verification.checks}
    assert checks["forecast.onnx, gaps windows"] == 16


def test_graphs_of_before_are_verified_without_gaps(client: Client, tmp_path: Path) -> None:
    bundle = shutil.copytree(client.settings.models / "classed" / "1", tmp_path / "1")
    fields = json.loads((bundle / "manifest.json").read_bytes())
    del fields["observed_steps"]
    (bundle / "manifest.json").write_text(json.dumps(fields))
    found = verify_bundle(bundle, client.settings.models.parent / "out" / "classed")
    assert found.passed
    names = {check.name for check in found.checks}
    assert "forecast.onnx, mixed windows" in names
    assert "forecast.onnx, gaps windows" not in names


def test_what_distributions_have_no_quantiles_for(client: Client) -> None:
    error = client.error(asked("classed", windows()[5:6], horizon=6, quantiles=[0.5]))
    assert error["message"] == (
        "the quantiles of classed are of the student-t distributions that it forecasts, for at "
        "most 5 steps, got a horizon of 6"
    )
    long = asked("classed", walks(1, 90, 3), quantiles=[0.5], calibration="history")
    error = client.error(long)
    said = "of the student-t distributions that it forecasts, which no errors correct"
    assert said in error["message"]
    error = client.error(asked("crossed", windows()[5:6], quantiles=[0.5]))
    assert "crossed has no quantiles: it was exported without the data" in error["message"]


def test_a_backtest_has_the_quantiles_of_distributions(client: Client) -> None:
    body = asked("classed", walks(1, 60, 3), quantiles=[0.1, 0.9])
    answer = client.request("POST", "/backtest", json=body)
    assert answer.status_code == 200, answer.text
    channel = answer.json()["outputs"][0]["content"][0]["channels"][0]
    assert 0 < channel["intervals"][0]["coverage"] <= 1


def test_tables_have_the_quantiles_of_distributions(client: Client) -> None:
    bundle = client.settings.models / "classed" / "1"
    forecaster = Forecaster(bundle, ForecastOptions(quantiles=[0.1, 0.9]), "cpu")
    rows = windows()[5].double().numpy()
    columns = {name: rows[:, at] for at, name in enumerate(CHANNELS)}
    times = np.datetime64("2026-01-01", "us") + np.timedelta64(1, "h") * np.arange(CONTEXT)
    table, bounds = pa.table({"ds": times, **columns}), np.array([0, CONTEXT])
    chunk = Chunk(table, pa.array(["a"]), bounds[:1], bounds[1:], 0)
    [found], rejected = forecaster.forecast(chunk)
    forecaster.close()
    assert not rejected
    told = client.first(asked("classed", windows()[5:6], quantiles=[0.1, 0.9]))["quantiles"]
    for layer, level in zip(found.layers[1:], ("0.1", "0.9"), strict=True):
        np.testing.assert_allclose(layer[0], told[level], rtol=1e-5)


def test_no_thread_searches_for_many_counts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.intervals._MOST_SEARCHED", 2 * 5 * 3 * 2)
    few = asked("counts", windows()[5:7], quantiles=[0.1, 0.9])
    threads, search = [], Intervals.quantiles

    def watched(self, *arguments):
        threads.append(threading.current_thread().name)
        return search(self, *arguments)

    monkeypatch.setattr(Intervals, "quantiles", watched)
    assert client.forecast(few).status_code == 200
    assert threads[0].startswith("offload")
    error = client.error(asked("counts", windows()[5:8], quantiles=[0.1, 0.9]))
    assert error["param"] == "options.quantiles"
    assert (
        "would hold 90 quantiles of counts, which are searched for, and may hold 60"
        in (error["message"])
    )
    body = asked("counts", walks(2, 60, 3), quantiles=[0.1, 0.9])
    body["options"]["origins"] = 2
    answer = client.request("POST", "/backtest", json=body)
    assert "2 inputs leave room for 1 origins of each, got 2" in answer.text


def test_the_card_says_that_there_are_quantiles(client: Client) -> None:
    cards = {one["name"]: one for one in client.get("/models").json()}
    assert [cards[name]["quantiles"] for name in SERVED] == [False, True, True]


def test_counts_are_of_values_as_they_are(folders: dict[str, Path], tmp_path: Path) -> None:
    given = ["--frequency", "h", "--channels", ",".join(CHANNELS), "--mean", "1,1,1"]
    arguments = ["--from", "huggingface", *given, "--std", "1,1,1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(command, [str(folders["counts"]), *arguments])
    assert done.exit_code == 2
    assert "negative-binomial: of counts, which are trained on as they are" in done.stderr


def break_config(path: Path, kind: str) -> None:
    match kind:
        case "no config":
            path.unlink()
        case "another model":
            path.write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
        case "another head":
            found = json.loads(path.read_bytes())
            path.write_text(json.dumps(found | {"architectures": ["PatchTSTForRegression"]}))


def break_weights(path: Path, kind: str, state: dict[str, Tensor]) -> None:
    key = "head.projection.proj.0.bias"
    changed: dict[str, dict[str, Tensor]] = {
        "tensor missing": {},
        "tensor too many": {key: state[key], "head.projection.scale": torch.ones(3)},
        "other shape": {key: torch.ones(4)},
        "not finite": {key: torch.full((5,), torch.nan)},
    }
    if kind in changed:
        others = {name: tensor for name, tensor in state.items() if name != key}
        save_file(others | changed[kind], path)
    break_file(path, kind)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no config", "config.json: No such file or directory"),
        (
            "another model",
            "config.json: a model of BertModel is not read; PatchTSTForPrediction, TimeSeries",
        ),
        ("another head", "config.json: a model of PatchTSTForRegression is not read"),
        ("tensor missing", "missing (1):\n    head.projection.proj.0.bias [5]"),
        ("tensor too many", "unexpected (1):\n    head.projection.scale [3]"),
        ("other shape", "head.projection.proj.0.bias is [4], expected [5]"),
        ("not finite", "head.projection.proj.0.bias has values that are not finite"),
        ("no weights", "neither model.safetensors nor pytorch_model.bin is there"),
        ("cut off", "model.safetensors: damaged or cut off"),
        ("pickle that runs code", "refused: loading it would call posix.mkdir"),
    ],
)
def test_a_broken_folder_is_refused_and_nothing_written(
    models: dict[str, Any], tmp_path: Path, kind: str, message: str
) -> None:
    folder = save(models["classed"], tmp_path / "saved")
    before = {path.name for path in folder.iterdir()}
    break_config(folder / "config.json", kind)
    break_weights(folder / "model.safetensors", kind, models["classed"].state_dict())
    done = run(folder, tmp_path / "out", "--to", str(tmp_path / "models"), "--name", "x")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"saved"}
    assert {path.name for path in folder.iterdir()} <= before | {"pytorch_model.bin"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "nll", "prediction_length": 1}, "prediction_length 1: the library itself"),
        ({"loss": "nll", "distribution_output": "poisson"}, "distribution_output 'poisson': Input"),
        ({"share_projection": False}, "share_projection False: Input should be True"),
        ({"activation_function": "silu"}, "activation_function 'silu': Input should be 'gelu'"),
        ({"pooling_type": "median"}, "pooling_type 'median': Input should be 'mean' or 'max'"),
        ({"patch_length": 27}, "patch_length: 27 steps are not fewer than the context of 27"),
        ({"num_attention_heads": 3}, "heads: 3 heads do not divide d_model 8"),
        ({"d_model": "8"}, "d_model '8': Input should be a valid integer"),
        ({"scaling_dim": 2}, "scaling_dim 2: Input should be 1"),
        ({"minimum_scale": 0.1}, "minimum_scale 0.1: models with 1e-05 are read"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(
    folders: dict[str, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = json.loads((folders["classed"] / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(found | changes))
    with pytest.raises(ImporterError) as error:
        adopt(tmp_path)
    assert message in str(error.value)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    for text, message in (
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "expected an object with model_type"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ImporterError, match=message):
            adopt(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--channels", "load,wind"], "--channels: expected 3 names, got 2"),
        (["--mean", "0,0,0", "--std", "1,1,1"], "--unscaled: there are --mean and --std"),
        (["--seq_len", "27"], "--seq_len: the folder tells what the model is"),
        (["--arch", "patchtst"], "--arch: the folder tells what the model is"),
        (["--frequency", "x"], "--frequency: "),
    ],
)
def test_options_that_do_not_fit(
    folders: dict[str, Path], tmp_path: Path, options: list[str], message: str
) -> None:
    done = run(folders["classed"], tmp_path / "out", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_no_folder_tells_is_asked_for(folders: dict[str, Path], tmp_path: Path) -> None:
    hours = np.datetime64("2026-01-01T00", "h") + np.arange(200)
    rows = [f"{hour},{i % 24},{i % 7},{i % 5}" for i, hour in enumerate(hours)]
    table = tmp_path / "train.csv"
    table.write_text("\n".join([",".join(("date", *CHANNELS)), *rows, ""]))
    folder, start = (
        str(folders["classed"]),
        ["--from", "huggingface", "--out", str(tmp_path / "out")],
    )
    for options, message in (
        ([], "--channels, --frequency, --mean and --std (or --unscaled)"),
        (["--data", str(table)], "--mean and --std, or --unscaled"),
        (["--data", str(table), "--unscaled"], "--split: which rows of the data"),
        (["--data", str(table), "--unscaled", "--channels", "sun"], "1 channels (sun), but the"),
    ):
        done = CliRunner().invoke(command, [folder, *start, *options])
        assert done.exit_code == 2
        assert message in done.stderr
    options = ["--data", str(table), "--unscaled", "--split", "0.6,0.2,0.2"]
    done = CliRunner().invoke(command, [folder, *start, *options])
    assert done.exit_code == 0, done.output
    assert "scaler" in done.stdout
    assert "--unscaled" in done.stdout


def test_a_folder_needs_its_library_and_a_library_its_folder(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    done = CliRunner().invoke(command, [str(folders["classed"]), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "is a folder: name the library with --from huggingface" in done.stderr
    file = tmp_path / "file"
    file.touch()
    done = run(file, tmp_path / "out")
    assert done.exit_code == 2
    assert "is no folder, which --from huggingface reads" in done.stderr


def test_the_bundle_says_what_it_is_made_of(client: Client) -> None:
    manifest = read(client.settings.models / "crossed" / "1")
    assert manifest.architecture == "huggingface-patchtst"
    assert manifest.devices == ("cuda", "cpu")
    assert manifest.verification.passed
