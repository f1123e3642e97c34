import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from foretell import demo
from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Accuracy, CalibrationReport, Coverage, TestResult
from foretell.commands.demo import command
from foretell.export.errors import ExportError
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.training.config import TrainingConfig
from foretell.training.errors import ResumeError, TrainingError
from foretell.training.progress import Progress
from tests.checkpoints import CONFIGS, randomised
from tests.support.bundles import Spec, write_bundle

MODELS = ("patchtst", "transformer", "autoformer")


def measured(
    mse: float,
    last_value: float = 0.9,
    seasonal_naive: float | None = 0.8,
    mae: float | None = None,
):
    """A test result with these squared errors; the absolute ones are the same if not given."""

    def accuracy(error: float) -> Accuracy:
        return Accuracy(mse=error, mae=error)

    return TestResult(
        windows=9,
        model=Accuracy(mse=mse, mae=mse if mae is None else mae),
        last_value=accuracy(last_value),
        seasonal_naive=None if seasonal_naive is None else accuracy(seasonal_naive),
        season=24,
    )


def calibrated(at_80: float, at_95: float, steps: int = 4) -> CalibrationReport:
    """What the intervals of the first pass hold, and of a second one, which does not count."""
    parts = [
        Coverage(level=level, first_step=1, last_step=steps, windows=20, coverage=held, width=1.0)
        for level, held in ((0.8, at_80), (0.95, at_95))
    ]
    later = [
        part.model_copy(update={"first_step": steps + 1, "last_step": 2 * steps, "coverage": 0.5})
        for part in parts
    ]
    return CalibrationReport(
        floor=0.1, steps=2 * steps, windows=(9, 9), disjoint=(3, 3), coverage=(*parts, *later)
    )


class Workshop:
    """Stands in for training and export, which take minutes, and remembers what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mse = 0.4
        self.held = (0.76, 0.93)
        self.unfinished: Exception | None = None
        self.trained: list[TrainingConfig] = []
        self.exported: list[str] = []
        monkeypatch.setattr(demo, "train", self.train)
        monkeypatch.setattr(demo, "export_checkpoint", self.export)

    def train(
        self,
        settings: TrainingConfig,
        table: object,
        out: Path,
        *,
        progress: object,
        restart: bool = False,
    ) -> None:
        if self.unfinished is not None and not restart:
            raise self.unfinished
        self.trained.append(settings)
        config = CONFIGS[settings.arch]
        info = CheckpointInfo.model_validate(
            {
                "config": config,
                "channels": ("a", "b", "c"),
                "frequency": "h",
                "scaler": {"mean": (0.0,) * 3, "std": (1.0,) * 3},
                "test": measured(self.mse),
            }
        )
        save(out, randomised(config), info)

    def export(self, checkpoint: Path, repository: Path, *, name: str) -> Path:
        assert (checkpoint / "config.json").exists()
        self.exported.append(name)
        changes = {"test": measured(self.mse), "calibration": calibrated(*self.held)}
        return write_bundle(repository, Spec(name=name, calibrated=2, changes=changes))


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(monkeypatch)


def test_makes_all_three_models(workshop: Workshop, tmp_path: Path):
    manifests = list(demo.build(tmp_path / "demo", MODELS, Progress()))
    assert tuple(manifest.name for manifest in manifests) == MODELS
    assert tuple(settings.arch for settings in workshop.trained) == MODELS
    assert {(s.context, s.horizon) for s in workshop.trained} == {(168, 24)}
    assert all(
        str(settings.bounds["relative_humidity"]) == "0:100" for settings in workshop.trained
    )
    assert workshop.exported == list(MODELS)
    assert layout.model_names(tmp_path / "demo" / "repository") == sorted(MODELS)


def test_an_unfinished_training_of_other_settings_starts_afresh(workshop: Workshop, tmp_path: Path):
    workshop.unfinished = ResumeError("epochs was 2 and is 3")
    assert len(list(demo.build(tmp_path, MODELS, Progress()))) == 3
    assert [settings.epochs for settings in workshop.trained] == [4, 2, 2]


def test_keeps_what_is_there(workshop: Workshop, tmp_path: Path):
    list(demo.build(tmp_path, MODELS, Progress()))
    data = (tmp_path / "greensboro.csv").stat()
    workshop.trained.clear()
    workshop.exported.clear()
    for lost in (
        tmp_path / "repository" / "transformer" / "1" / layout.MANIFEST,
        tmp_path / "repository" / "autoformer" / "1" / layout.MANIFEST,
        *(tmp_path / "checkpoints" / "autoformer").iterdir(),
    ):
        lost.unlink()
    (tmp_path / "checkpoints" / "autoformer").rmdir()
    for name in ("transformer", "autoformer"):
        (tmp_path / "repository" / name).rename(tmp_path / name)
    assert len(list(demo.build(tmp_path, MODELS, Progress()))) == 3
    assert [settings.arch for settings in workshop.trained] == ["autoformer"]
    assert workshop.exported == ["transformer", "autoformer"]
    assert (tmp_path / "greensboro.csv").stat() == data


def test_the_request_is_the_last_week(workshop: Workshop, tmp_path: Path):
    next(demo.build(tmp_path, MODELS, Progress()))
    request = json.loads((tmp_path / "request.json").read_text())
    rows = (tmp_path / "greensboro.csv").read_text().splitlines()[-168:]
    [series] = request["inputs"]
    assert series["series"] == [[float(cell) for cell in row.split(",")[1:]] for row in rows]
    assert series["start_timestamp"] == rows[0].split(",")[0].replace(" ", "T")
    assert (request["model"], series["frequency"]) == ("patchtst", "h")
    assert request["options"] == {"horizon": 3}


@pytest.mark.parametrize(("mse", "bar"), [(0.61, "0.800"), (0.85, "0.800"), (2.0, "0.800")])
def test_a_model_no_better_than_a_baseline_is_not_exported(
    workshop: Workshop, tmp_path: Path, mse: float, bar: str
):
    workshop.mse = mse
    for _ in range(2):  # nor by trying again
        with pytest.raises(ExportError, match=f"patchtst: test MSE .*baseline has {bar}"):
            list(demo.build(tmp_path, MODELS, Progress()))
    assert workshop.exported == []


@pytest.mark.parametrize(
    ("name", "result", "message"),
    [
        (
            *("patchtst", measured(0.35, last_value=0.4)),
            "test MSE 0.350, the better baseline has 0.400: expected at most 0.54 of it; test MAE "
            "0.350, the better baseline has 0.400: expected at most 0.79 of it",
        ),
        ("patchtst", measured(0.44, mae=0.62), "patchtst: test MSE 0.440, .* at most 0.54 of it$"),
        ("patchtst", measured(0.43, mae=0.64), "patchtst: test MAE 0.640, .* at most 0.79 of it$"),
        ("transformer", measured(0.58, mae=0.75), "^transformer: test MSE .* at most 0.72 of it$"),
        ("autoformer", measured(0.57, mae=0.77), "^autoformer: test MAE .* at most 0.95 of it$"),
        ("patchtst", measured(0.4, mae=float("nan")), "test MAE nan"),
        ("patchtst", measured(0.4, seasonal_naive=0.3), "better baseline has 0.300"),
        ("patchtst", measured(float("nan")), "test MSE nan"),
        ("patchtst", measured(0.4, seasonal_naive=None), "was not measured"),
        ("patchtst", None, "was not measured"),
    ],
)
def test_both_baselines_count(name: str, result: TestResult | None, message: str):
    with pytest.raises(ExportError, match=message):
        demo._check_accuracy(name, result)


@pytest.mark.parametrize("name", MODELS)
def test_another_machine_may_be_a_little_worse(name: str):
    mse, mae = (0.43, 0.63) if name == "patchtst" else (0.57, 0.75)
    demo._check_accuracy(name, measured(mse, mae=mae))
    for held in ((0.745, 0.905), (0.855, 0.985)):
        demo._check_intervals(name, calibrated(*held))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ((0.73, 0.93), "its 80% intervals hold 73.0% of the test split: expected 74% to 86%$"),
        ((0.87, 0.93), "its 80% intervals hold 87.0% "),
        ((0.76, 0.995), "its 95% intervals hold 99.5% "),
        ((0.76, 0.89), "its 95% intervals hold 89.0% of the test split: expected 90% to 99%$"),
        ((0.7, 0.8), "^transformer: its 80% intervals hold 70.0% .*; its 95% intervals hold 80.0%"),
    ],
)
def test_a_model_whose_intervals_hold_too_little_or_too_much_is_not_there(
    workshop: Workshop, tmp_path: Path, held: tuple[float, float], message: str
):
    workshop.held = held
    for _ in range(2):  # nor by trying again
        with pytest.raises(ExportError, match=message):
            list(demo.build(tmp_path, ("transformer",), Progress()))
    assert not (tmp_path / "repository").exists()
    workshop.held = (0.76, 0.93)
    assert len(list(demo.build(tmp_path, ("transformer",), Progress()))) == 1


def test_intervals_that_were_not_measured():
    found = calibrated(0.76, 0.93)
    some = found.model_copy(update={"coverage": found.coverage[1:]})
    for report in (None, some):
        with pytest.raises(ExportError, match="patchtst: what its intervals hold was not measured"):
            demo._check_intervals("patchtst", report)


def test_the_command_prints_the_table(workshop: Workshop, tmp_path: Path):
    result = CliRunner().invoke(command, [f"--to={tmp_path}"])
    assert result.exit_code == 0, result.stderr
    assert "test split, MSE / MAE" in result.stdout
    for name in MODELS:
        assert f"{name}: trained, exported and verified" in result.stderr
        assert f"│ {name}" in result.stdout
    assert "0.40000 / 0.40000" in result.stdout


def test_the_command_says_what_failed(workshop: Workshop, tmp_path: Path):
    workshop.mse = 1.0
    result = CliRunner().invoke(command, [f"--to={tmp_path}"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "foretell demo: patchtst: test MSE 1.000" in result.stderr


@pytest.mark.parametrize("error", [TrainingError("no GPU"), BundleError("no manifest")])
def test_the_command_says_what_went_wrong(workshop: Workshop, tmp_path: Path, error: Exception):
    workshop.unfinished = error
    result = CliRunner().invoke(command, [f"--to={tmp_path}"])
    assert result.exit_code == 2
    assert result.stderr == f"foretell demo: {error}\n"


def test_a_finished_demo_imports_no_torch(tmp_path: Path):
    for name in MODELS:
        write_bundle(tmp_path / "repository", Spec(name=name))
    code = (
        "import sys; from foretell.commands.demo import command\n"
        f"command(['--to', {str(tmp_path)!r}], standalone_mode=False)\n"
        "sys.exit(bool({'torch', 'onnx', 'pandas'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"the demo's bundles are in {tmp_path / 'repository'}\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["repository"]
