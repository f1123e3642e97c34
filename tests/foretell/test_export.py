from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import read
from foretell.models.attention.softmax import Softmax
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.command import done, refused, run


def test_writes_a_bundle_and_prints_the_verification(exported: tuple[Path, Result]):
    repository, result = exported
    assert result.exit_code == 0, result.stderr
    manifest = read(repository / "small" / "1")
    assert manifest.name == "small"
    assert result.stdout.rstrip().endswith(f"written to {repository / 'small' / '1'}")
    for check in manifest.verification.checks:
        assert check.name in result.stdout
    assert "CPUExecutionProvider against torch float64" in result.stdout
    assert "in a faster form: " in result.stdout
    assert "\nfor: cuda, cpu\n" in result.stdout
    assert manifest.calibration is None
    assert "prediction intervals" not in result.stdout
    reason = "no quantiles: it was exported without the data it was trained on\n"
    assert reason in result.stdout
    assert reason in done("verify", repository / "small" / "1", "--report").stdout


def test_layers_without_a_faster_form_run_on_both_devices(tmp_path: Path):
    """Autoformer's layers have no faster form with other mechanisms."""
    smaller = {"attention": (Softmax(),), "encoder_layers": 1}
    config = CONFIGS["autoformer"].model_copy(update=smaller)
    checkpoint = checkpoint_of(config, None, tmp_path / "checkpoint")
    output = done("export", checkpoint, "--out", tmp_path / "models").stdout
    manifest = read(tmp_path / "models" / "checkpoint" / "1")
    assert manifest.devices == ("cuda", "cpu")
    assert {"AutoformerEncoderLayer", "DecoderStart"} <= set(manifest.plain)
    assert {"MultiHeadAttention", "SeriesDecomposition"} <= set(manifest.rewrites)
    assert {stage.form for stage in manifest.attention} == {"dense"}
    assert "\nfor: cuda, cpu\n" in output


def test_calibrates_the_requested_passes(tmp_path: Path):
    values = np.random.default_rng(1).normal(size=(600, 3))
    table = pd.DataFrame(values, columns=["load", "price", "wind"])
    table.insert(0, "date", pd.date_range("2024-01-01", periods=len(table), freq="h"))
    table.to_csv(tmp_path / "noise.csv", index=False)
    trained = checkpoint_of(CONFIGS["patchtst"], tmp_path / "noise.csv", tmp_path / "trained")
    given = [trained, f"--out={tmp_path}", "--name=noise"]
    output = done("export", *given, "--calibration-passes=2").stdout
    report = read(tmp_path / "noise" / "1").calibration
    assert report is not None
    assert report.steps == 24
    title = "prediction intervals on the test split"
    assert title in output
    assert title in done("verify", tmp_path / "noise" / "1", "--report").stdout
    assert "--calibration-passes" in run("export", *given, "--calibration-passes=0").stderr


def test_bounds_and_half_precision(checkpoint: Path, tmp_path: Path):
    given = ["--bounds=channel 0=0:", "--bounds=channel 2=-1:1", "--precision=float16"]
    output = done("export", checkpoint, f"--out={tmp_path}", "--name=kept", *given).stdout
    found = read(tmp_path / "kept" / "1")
    assert found.bounds == {"channel 0": Bound(low=0), "channel 2": Bound(low=-1, high=1)}
    assert "forecast.onnx, bounds" in output
    assert found.precision == "float16"
    assert "CPUExecutionProvider, emulating float16, against torch float64" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name=../x"], "model name '../x'"),
        (["--model-version=latest"], "version 'latest': expected a whole number"),
        (["--model-version=1"], "small/1: exists already"),
        (["--bounds=0:"], "Invalid value for '--bounds': expected CHANNEL=LOW:HIGH"),
        (
            ["--bounds=channel 0=2:1"],
            "'--bounds': channel 0: the low bound 2 is not below the high one 1",
        ),
        (
            ["--bounds=chanel 0=2:"],
            "bounds: no channel 'chanel 0' is forecast; did you mean 'channel 0'?",
        ),
        (["--precision=int8"], "'int8' is not one of 'float32', 'float16', 'bfloat16'"),
        (["--data={data}"], "{data}: "),
    ],
)
def test_bad_options_write_nothing(
    checkpoint: Path, exported: tuple[Path, Result], data: Path, options: list[str], message: str
):
    repository, _ = exported
    options = [option.format(data=data) for option in options]
    result = run("export", checkpoint, f"--out={repository}", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message.format(data=data) in result.stderr
    assert [entry.name for entry in (repository / "small").iterdir()] == ["1"]


def test_bad_folders_are_refused(checkpoint: Path, tmp_path: Path):
    assert "is not a bundle: a checkpoint needs --out" in run("export", checkpoint).stderr
    assert run("export", tmp_path / "nowhere", f"--out={tmp_path}").exit_code == 2
    (tmp_path / "empty").mkdir()
    message = refused("export", tmp_path / "empty", f"--out={tmp_path / 'repository'}")
    assert "empty/config.json: No such file" in message
    assert not (tmp_path / "repository").exists()
