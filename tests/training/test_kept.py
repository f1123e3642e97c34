"""A decoder of covariates that learns beside a trained network."""

from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read_frame
from foretell.models.checkpoint import load
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.train import train
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
    # The series is three times the price.
    assert trained.info.test is not None
    assert before.info.test is not None
    assert trained.info.test.model.mse < 0.7 * before.info.test.model.mse


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
        ({"model": {"d_model": 8}}, "d_model: the network has its own; leave it out"),
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
