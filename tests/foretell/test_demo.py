import json
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import layout
from foretell.bundle.manifest import read
from foretell.bundle.results import Accuracy, TestResult
from foretell.data import reading
from foretell.demo import models as demo
from foretell.demo.data import write_csv
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.training.config import TrainingConfig
from foretell.training.errors import ResumeError, TrainingError
from foretell.training.progress import Progress
from tests.checkpoints import CONFIGS, randomised
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, imported, refused
from tests.support.process import ROOT

MODELS = ("patchtst", "transformer", "autoformer")


ERRORS = {"model": 0.4, "last_value": 0.9, "seasonal_naive": 0.8}
MEASURED = TestResult(
    windows=9, season=24, **{name: Accuracy(mse=one, mae=one) for name, one in ERRORS.items()}
)
# The largest share of the better baseline's error; rounding differs between processors.
MOST = {"patchtst": (0.54, 0.79), "transformer": (0.72, 0.95), "autoformer": (0.72, 0.95)}
# Share of the horizon's values in the intervals of a level.
HELD = {0.8: (0.74, 0.86), 0.95: (0.90, 0.99)}


class RecordedTraining:
    """Replaces training and export, which take minutes, and records their arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
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
                "test": MEASURED,
            }
        )
        save(out, randomised(config), info)

    def export(self, checkpoint: Path, repository: Path, *, name: str) -> Path:
        assert (checkpoint / "config.json").exists()
        self.exported.append(name)
        return write_bundle(repository, Spec(name=name, changes={"test": MEASURED}))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedTraining:
    return RecordedTraining(monkeypatch)


def test_makes_all_three_models(recorded: RecordedTraining, tmp_path: Path):
    manifests = list(demo.build(tmp_path / "demo", MODELS, Progress()))
    assert tuple(manifest.name for manifest in manifests) == MODELS
    assert tuple(settings.arch for settings in recorded.trained) == MODELS
    assert {(s.context, s.horizon) for s in recorded.trained} == {(168, 24)}
    assert {str(s.bounds["relative_humidity"]) for s in recorded.trained} == {"0:100"}
    assert recorded.exported == list(MODELS)
    assert layout.model_names(tmp_path / "demo" / "repository") == sorted(MODELS)


def test_unfinished_training_of_other_settings_starts_afresh(
    recorded: RecordedTraining, tmp_path: Path
):
    recorded.unfinished = ResumeError("epochs was 2 and is 3")
    assert len(list(demo.build(tmp_path, MODELS, Progress()))) == 3
    assert [settings.epochs for settings in recorded.trained] == [4, 2, 2]


def test_keeps_what_is_there(recorded: RecordedTraining, tmp_path: Path):
    list(demo.build(tmp_path, MODELS, Progress()))
    data = (tmp_path / "greensboro.csv").stat()
    recorded.trained.clear()
    recorded.exported.clear()
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
    assert [settings.arch for settings in recorded.trained] == ["autoformer"]
    assert recorded.exported == ["transformer", "autoformer"]
    assert (tmp_path / "greensboro.csv").stat() == data


def test_request_is_the_last_week(recorded: RecordedTraining, tmp_path: Path):
    next(demo.build(tmp_path, MODELS, Progress()))
    request = json.loads((tmp_path / "request.json").read_text())
    rows = (tmp_path / "greensboro.csv").read_text().splitlines()[-168:]
    [series] = request["inputs"]
    assert series["series"] == [[float(cell) for cell in row.split(",")[1:]] for row in rows]
    assert series["start_timestamp"] == rows[0].split(",")[0].replace(" ", "T")
    assert (request["model"], series["frequency"]) == ("patchtst", "h")
    assert request["options"] == {"horizon": 3}


@pytest.mark.parametrize("name", MODELS)
def test_models_beat_the_baselines_and_intervals_hold(name: str):
    repository = ROOT / ".demo" / "repository"
    if not layout.versions(repository, name):
        pytest.skip("the demo was not made here: make demo")
    about = read(repository / name / layout.versions(repository, name)[-1])
    assert about.test is not None
    assert about.test.seasonal_naive is not None
    for error, most in zip(("mse", "mae"), MOST[name], strict=True):
        best = min(
            getattr(one, error) for one in (about.test.last_value, about.test.seasonal_naive)
        )
        assert getattr(about.test.model, error) <= most * best
    assert about.calibration is not None
    first = {one.level: one.coverage for one in about.calibration.coverage if one.first_step == 1}
    for level, (least, most) in HELD.items():
        assert least <= first[level] <= most


def test_command_prints_the_table(recorded: RecordedTraining, tmp_path: Path):
    result = done("demo", f"--out={tmp_path}")
    assert "test split, MSE / MAE" in result.stdout
    for name in MODELS:
        assert f"{name}: trained, exported and verified" in result.stderr
        assert f"│ {name}" in result.stdout
    assert "0.40000 / 0.40000" in result.stdout


def test_command_names_what_went_wrong(recorded: RecordedTraining, tmp_path: Path):
    recorded.unfinished = TrainingError("no GPU")
    assert refused("demo", f"--out={tmp_path}") == "foretell demo: no GPU\n"


def test_finished_demo_imports_no_torch_and_writes_nothing(tmp_path: Path):
    for name in MODELS:
        write_bundle(tmp_path / "repository", Spec(name=name))
    output = f"the demo's bundles are in {tmp_path / 'repository'}\n"
    ended = imported("demo", f"--out={tmp_path}", libraries={"torch", "onnx", "pandas"})
    assert ended == (0, output, set())
    assert [entry.name for entry in tmp_path.iterdir()] == ["repository"]


def test_data_is_a_year_of_hourly_weather(tmp_path: Path):
    write_csv(tmp_path / "new" / "greensboro.csv")
    (table,) = reading.read(tmp_path / "new" / "greensboro.csv").tables
    assert (len(table), str(table.frequency), table.utc_offset) == (8760, "h", None)
    assert len(set(table.timestamps.astype("M8[D]").tolist())) == 366
    by_name = dict(zip(table.channels, table.values.T, strict=True))
    limits = {name: (values.min(), values.max()) for name, values in by_name.items()}
    for name, low, high in (
        ("global_irradiance", (0, 0), (900, 1100)),
        ("direct_irradiance", (0, 0), (800, 1100)),
        ("temperature", (-20, 0), (30, 40)),
        ("relative_humidity", (1, 40), (90, 100)),
        ("pressure", (950, 1000), (1000, 1050)),
        ("wind_speed", (0, 0), (8, 30)),
        ("cloud_cover", (0, 0), (10, 10)),
    ):
        least, most = limits.pop(name)
        assert low[0] <= least <= low[1], name
        assert high[0] <= most <= high[1], name
    assert not limits
    # The sun shines at noon.
    hour = table.timestamps.astype("M8[h]").astype(int) % 24
    means = np.array([by_name["global_irradiance"][hour == h].mean() for h in range(24)])
    assert 11 <= means.argmax() <= 14
    assert means[[0, 1, 2, 3, 23]].max() == 0
