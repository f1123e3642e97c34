from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import read
from foretell.commands.export import command
from foretell.commands.verify import command as verify
from foretell.data import reading
from foretell.models.attention.softmax import Softmax
from foretell.training.config import TrainingConfig
from foretell.training.train import train
from tests.checkpoints import CONFIGS, checkpoint_of


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_writes_a_bundle_and_says_what_was_verified(exported: tuple[Path, Result]):
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
    report = CliRunner().invoke(verify, [str(repository / "small" / "1"), "--report"])
    assert reason in report.stdout


def test_layers_without_a_faster_form_run_on_both_devices(tmp_path: Path):
    """Autoformer's own layers have no faster form with mechanisms that are none of its own."""
    smaller = {"attention": (Softmax(),), "encoder_layers": 1}
    config = CONFIGS["autoformer"].model_copy(update=smaller)
    checkpoint = checkpoint_of(config, None, tmp_path / "checkpoint")
    result = run(checkpoint, "--out", tmp_path / "models")
    assert result.exit_code == 0, result.stderr
    manifest = read(tmp_path / "models" / "checkpoint" / "1")
    assert manifest.devices == ("cuda", "cpu")
    assert {"AutoformerEncoderLayer", "DecoderStart"} <= set(manifest.plain)
    assert {"MultiHeadAttention", "SeriesDecomposition"} <= set(manifest.rewrites)
    assert {stage.form for stage in manifest.attention} == {"dense"}
    assert "\nfor: cuda, cpu\n" in result.stdout


def test_calibrates_as_many_passes_as_it_is_told(tmp_path: Path):
    values = np.random.default_rng(1).normal(size=(600, 3))
    table = pd.DataFrame(values, columns=["load", "price", "wind"])
    table.insert(0, "date", pd.date_range("2024-01-01", periods=len(table), freq="h"))
    table.to_csv(tmp_path / "noise.csv", index=False)
    trained = checkpoint_of(CONFIGS["patchtst"], tmp_path / "noise.csv", tmp_path / "trained")
    result = run(trained, f"--out={tmp_path}", "--name=noise", "--calibration-passes=2")
    assert result.exit_code == 0, result.stderr
    report = read(tmp_path / "noise" / "1").calibration
    assert report is not None
    assert report.steps == 24
    title = "prediction intervals on the test split"
    assert title in result.stdout
    assert title in CliRunner().invoke(verify, [str(tmp_path / "noise" / "1"), "--report"]).stdout
    assert (
        "--calibration-passes" in run(trained, f"--out={tmp_path}", "--calibration-passes=0").stderr
    )


def test_bounds(checkpoint: Path, tmp_path: Path):
    given = ["--name=kept", "--bounds=channel 0=0:", "--bounds=channel 2=-1:1"]
    result = run(checkpoint, f"--out={tmp_path}", *given)
    assert result.exit_code == 0, result.stderr
    found = read(tmp_path / "kept" / "1").bounds
    assert found == {"channel 0": Bound(low=0), "channel 2": Bound(low=-1, high=1)}
    assert "forecast.onnx, bounds" in result.stdout
    for bounds, message in (
        ("0:", "Invalid value for '--bounds': expected CHANNEL=LOW:HIGH"),
        ("channel 0=2:1", "'--bounds': channel 0: the low bound 2 is not below the high one 1"),
        ("chanel 0=2:", "bounds: no channel 'chanel 0' is forecast; did you mean 'channel 0'?"),
    ):
        result = run(checkpoint, f"--out={tmp_path}", f"--bounds={bounds}")
        assert result.exit_code == 2
        assert message in result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


def test_short_data_are_calibrated_on_refits(tmp_path: Path):
    """A validation split of a year of months is one window."""
    months = np.arange(144)
    noise = np.random.default_rng(2).normal(0, 4, len(months))
    table = pd.DataFrame({"date": pd.date_range("2010-01-01", periods=len(months), freq="MS")})
    table["sales"] = 100 + 20 * np.sin(months * np.pi / 6) + noise
    table.to_csv(tmp_path / "sales.csv", index=False)
    settings = TrainingConfig(arch="dlinear", context=24, horizon=12, device="cpu")
    train(settings, reading.read(tmp_path / "sales.csv"), tmp_path / "sales")
    result = run(tmp_path / "sales", f"--out={tmp_path / 'models'}", "--force")
    assert result.exit_code == 0, result.stderr
    report = read(tmp_path / "models" / "sales" / "1").calibration
    assert report is not None
    assert report.method == "scaled_rolling_refits"
    assert report.steps == 12
    assert report.windows[0] > 40
    assert "quantiles for 12 steps, from the errors of 4" in result.stdout


def test_half_precision(checkpoint: Path, tmp_path: Path):
    result = run(checkpoint, f"--out={tmp_path}", "--name=half", "--precision=float16")
    assert result.exit_code == 0, result.stderr
    assert read(tmp_path / "half" / "1").precision == "float16"
    assert "CPUExecutionProvider, emulating float16, against torch float64" in result.stdout
    result = run(checkpoint, f"--out={tmp_path}", "--precision=int8")
    assert result.exit_code == 2
    assert "'int8' is not one of 'float32', 'float16', 'bfloat16'" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name=../x"], "model name '../x'"),
        (["--model-version=latest"], "version 'latest': expected a whole number"),
        (["--model-version=1"], "small/1: exists already"),
    ],
)
def test_bad_names(
    checkpoint: Path, exported: tuple[Path, Result], options: list[str], message: str
):
    repository, _ = exported
    result = run(checkpoint, f"--out={repository}", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("foretell export: ")
    assert message in result.stderr
    assert [entry.name for entry in (repository / "small").iterdir()] == ["1"]


def test_a_folder_that_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / "empty", f"--out={tmp_path / 'repository'}")
    assert result.exit_code == 2
    assert "empty/config.json: No such file" in result.stderr
    assert not (tmp_path / "repository").exists()


def test_data_of_another_model(checkpoint: Path, data: Path, tmp_path: Path):
    result = run(checkpoint, f"--out={tmp_path / 'repository'}", f"--data={data}")
    assert result.exit_code == 2
    assert f"{data}: " in result.stderr
    assert "channel 0" in result.stderr
    assert not (tmp_path / "repository").exists()


def test_bad_arguments(checkpoint: Path, tmp_path: Path):
    assert "is no bundle: a checkpoint needs --out" in run(checkpoint).stderr
    assert run(tmp_path / "nowhere", f"--out={tmp_path}").exit_code == 2
