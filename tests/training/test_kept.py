"""A decoder of covariates that learns beside a trained network."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from foretell.bundle.checksums import sha256
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.models.checkpoint import WEIGHTS, CheckpointInfo, load, load_info
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.kept import check_rows
from foretell.training.preparation import prepare
from foretell.training.progress import Progress
from foretell.training.train import train
from foretell.training.trainer import Trainer
from tests.training.conftest import Recorder
from tests.training.test_covariates import frame

KINDS = {"future_covariates": ("price", "sky"), "static_covariates": ("region",)}


@pytest.fixture(scope="module")
def plain() -> Panel:
    return read_frame(frame()[["id", "ds", "y"]], Reading())


@pytest.fixture(scope="module")
def panel() -> Panel:
    table = frame()[["id", "ds", "y", *KINDS["future_covariates"], *KINDS["static_covariates"]]]
    return read_frame(table, Reading(**KINDS))


def settings(**changes: Any) -> TrainingConfig:
    fields: dict[str, Any] = {"arch": "patchtst", "context": 24, "horizon": 4, "epochs": 2}
    sizes = {"d_model": 8, "heads": 2, "d_ff": 8, "norm": "batch"}
    return TrainingConfig(**fields | {"model": sizes} | changes)


@pytest.fixture(scope="module")
def network(plain: Panel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network") / "model"
    train(settings(), plain, folder)
    return folder


def test_decoder_learns_and_the_network_stays(network: Path, panel: Panel, tmp_path: Path) -> None:
    given = settings(network=network, model={"covariate_width": 16}, epochs=8)
    trained = train(given, panel, tmp_path / "both")
    before, after = load(network), load(tmp_path / "both")
    weights = after.model.state_dict()
    for name, weight in before.model.state_dict().items():
        assert torch.equal(weights[name], weight), name
    assert trained.info.scaler == before.info.scaler
    assert trained.info.config.covariate_width == 16
    assert trained.info.training is not None
    kept = trained.info.training.network
    assert kept is not None
    assert kept.sha256 == sha256(network / WEIGHTS)
    assert (kept.data, kept.training) == (before.info.data, before.info.training)
    # The series is three times the price.
    assert trained.info.test is not None
    assert before.info.test is not None
    assert trained.info.test.model.mse < 0.7 * before.info.test.model.mse


def test_decoder_learns_beside_the_forecasts_of_an_autoregressive_network(
    plain: Panel, panel: Panel, tmp_path: Path
) -> None:
    sizes = {"d_model": 8, "heads": 2, "d_ff": 8, "label": 4}
    own = {"decoding": "autoregressive", "decoding_chunk": 1}
    given = settings(arch="transformer", model=sizes | own, epochs=1, device="cpu")
    network = tmp_path / "network"
    train(given, plain, network)
    changes = {"model": {}, "network": network, "learning_rate": 1e-12}
    given = settings(arch="transformer", epochs=1, device="cpu", **changes)
    prepared = prepare(given, panel)
    trainer = Trainer(prepared.config, prepared.train, prepared.train, given, torch.device("cpu"))
    report = trainer.run_epoch(Progress())
    assert report.train_loss == pytest.approx(report.validation_loss, rel=1e-4)


class Files:
    """A table in files, and the description of a network that learnt from one of them.

    Args:
        folder: Folder of the files.
        network: Checkpoint of the network.
    """

    def __init__(self, folder: Path, network: Path) -> None:
        self.folder = folder
        self.info = load_info(network)

    def panel(self, table: pd.DataFrame, name: str = "data.csv", **kinds: Any) -> Panel:
        table.to_csv(self.folder / name, index=False)
        return read(self.folder / name, Reading(**kinds))

    def learnt(self, panel: Panel, *fractions: float) -> CheckpointInfo:
        source = DataSource.of(panel, Splits.by_fraction(*fractions))
        fields = dict(self.info) | {"data": source}
        return CheckpointInfo.model_validate(fields)

    def check(self, info: CheckpointInfo, panel: Panel) -> str | None:
        return check_rows(info, panel, Splits.by_fraction().cut(panel, 24, 4))


@pytest.fixture
def files(tmp_path: Path, network: Path) -> Files:
    return Files(tmp_path, network)


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((0.9, 0.05, 0.05), r"learnt from 24 validation rows of series 'a', the first at .*-08T00"),
        ((0.8, 0.1, 0.1), r"learnt from 24 validation rows of series 'a', the first at .*-08T00"),
        ((0.7, 0.2, 0.1), r"was chosen by its errors on 24 test rows of series 'a', .*-09T00"),
    ],
)
def test_rows_that_the_network_has_seen_are_refused(
    files: Files, fractions: tuple[float, ...], message: str
) -> None:
    info = files.learnt(files.panel(frame()[["id", "ds", "y"]]), *fractions)
    other = files.panel(frame()[["id", "ds", "y", "price"]], "more.csv", future_covariates="price")
    with pytest.raises(TrainingError, match=message):
        files.check(info, other)
    # The rows of its own file, as the decoder reads them.
    with pytest.raises(TrainingError, match=message):
        files.check(files.learnt(other, *fractions), other)


def test_series_of_another_name_is_recognised_by_its_values(files: Files) -> None:
    table = frame("a")
    named, other = table[["id", "ds", "y"]], table[["ds", "y"]]
    info = files.learnt(files.panel(named), 0.9, 0.05, 0.05)
    with pytest.raises(TrainingError, match="learnt from 24 validation rows, the first"):
        files.check(info, files.panel(other, "other.csv"))
    warning = files.check(info, files.panel(other.assign(y=other["y"] + 1), "shifted.csv"))
    assert warning is not None
    assert "it learnt from rows up to 2024-01-09T23:00:00, which lie after test rows" in warning


@pytest.mark.parametrize("single", ["network", "decoder"])
def test_a_single_series_is_found_under_another_name(files: Files, single: str) -> None:
    one, all_of_them = frame("a")[["ds", "y"]], frame()[["id", "ds", "y"]]
    tables = {"one.csv": one, "all.csv": all_of_them}
    first, second = tables if single == "network" else [*tables][::-1]
    info = files.learnt(files.panel(tables[first], first), 0.9, 0.05, 0.05)
    of = " of series 'a'" if single == "network" else ""
    with pytest.raises(TrainingError, match=f"learnt from 24 validation rows{of}, the first"):
        files.check(info, files.panel(tables[second], second))


@pytest.mark.parametrize(("rate", "is_seen"), [(0.2, False), (5, False), (0, True)])
def test_series_of_mostly_one_value_are_compared_by_the_others(
    files: Files, rate: float, is_seen: bool
) -> None:
    table, random = frame("a")[["id", "ds", "y"]], np.random.default_rng(0)
    counts = [table.assign(y=random.poisson(rate, len(table))) for _ in range(2)]
    panels = [files.panel(each, f"{place}.csv") for place, each in enumerate(counts)]
    info = files.learnt(panels[0], 0.9, 0.05, 0.05)
    with pytest.raises(TrainingError, match="learnt from 24 validation rows"):
        files.check(info, panels[0])
    with pytest.raises(TrainingError) if is_seen else nullcontext():
        files.check(info, panels[1])


def test_preparation_refuses_rows_that_the_network_has_seen(files: Files) -> None:
    table = frame()[["id", "ds", "y", "price"]]
    plain = files.panel(table[["id", "ds", "y"]])
    train(settings(splits=(0.9, 0.05, 0.05), epochs=1), plain, files.folder / "model")
    more = files.panel(table, "more.csv", future_covariates="price")
    given = settings(network=files.folder / "model", model={})
    with pytest.raises(TrainingError, match="learnt from 24 validation rows of series 'a'"):
        prepare(given, more)


def test_rows_of_the_same_splits_pass_also_from_another_file(files: Files) -> None:
    info = files.learnt(files.panel(frame()[["id", "ds", "y"]]), 0.7, 0.1, 0.2)
    more = files.panel(frame()[["id", "ds", "y", "price"]], "more.csv", future_covariates="price")
    assert files.check(info, more) is None


def test_a_moved_file_is_found_again(files: Files) -> None:
    table = frame()[["id", "ds", "y"]]
    info = files.learnt(files.panel(table), 0.7, 0.1, 0.2)
    (files.folder / "data.csv").rename(files.folder / "moved.csv")
    assert files.check(info, read(files.folder / "moved.csv", Reading())) is None
    warning = files.check(info, read_frame(table, Reading()))
    assert warning is not None
    pattern = r"cannot be compared: .*data\.csv: missing; .*; put it back .* are too small if"
    assert re.search(pattern, warning)
    assert "--data" not in warning


def test_network_without_recorded_data_is_reported(
    network: Path, panel: Panel, tmp_path: Path
) -> None:
    recorder = Recorder()
    given = settings(network=network, model={}, epochs=1)
    train(given, panel, tmp_path / "both", progress=recorder)
    (warning,) = [each for each in recorder.warnings if each.startswith("network: ")]
    assert "its checkpoint does not record its data; validation and test errors" in warning


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 25}, "context: 25 is not that of the network, 24"),
        ({"arch": "dlinear"}, "arch: dlinear is not that of the network, patchtst"),
        (
            {
                "target": ("y",),
                "network": None,
                "arch": "tide",
                "model": {"covariate_decoder": True},
            },
            "covariate_decoder: tide reads covariates itself",
        ),
        (
            {"model": {"covariate_neighbours": 999}},
            "covariate_neighbours: expected at most the context 24",
        ),
        ({"model": {"d_model": 8}}, "d_model: the network has its own; leave it out"),
        ({"calendar": "none"}, "calendar: the network has its own; leave it out"),
    ],
)
def test_other_settings_than_those_of_the_network_are_refused(
    network: Path, panel: Panel, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    given = settings(**{"network": network, "model": {}} | changes)
    with pytest.raises(TrainingError, match=message):
        train(given, panel, tmp_path / "both")


def test_network_needs_covariates_and_its_own_channels(
    network: Path, plain: Panel, panel: Panel, tmp_path: Path
) -> None:
    given = settings(network=network, model={})
    with pytest.raises(TrainingError, match="needs covariates; name some"):
        train(given, plain, tmp_path / "both")
    train(given, panel, tmp_path / "both")
    with pytest.raises(TrainingError, match="reads covariates already"):
        train(settings(network=tmp_path / "both", model={}), panel, tmp_path / "again")
    table = frame()[["id", "ds", "y", "wind", "price"]]
    other = read_frame(table, Reading(future_covariates=("price",), past_covariates=("wind",)))
    with pytest.raises(TrainingError, match="it reads the channels y; the data has y, wind"):
        train(given, other, tmp_path / "other")
