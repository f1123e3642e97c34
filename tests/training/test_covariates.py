"""Trainings on tables with covariates, from the table to the refits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from foretell.bundle.covariates import Covariate
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame
from foretell.data.source import DataSource
from foretell.models.checkpoint import load
from foretell.training.config import TrainingConfig
from foretell.training.errors import ResumeError, TrainingError
from foretell.training.preparation import prepare, targets_of
from foretell.training.refits import refit_errors
from foretell.training.train import train
from foretell.training.windows import Windows
from tests.training.conftest import Recorder

HOURS = 240
KINDS = {
    "future_covariates": ("price", "sky"),
    "past_covariates": ("wind", "open"),
    "static_covariates": ("region",),
}


def frame(names: str = "ab") -> pd.DataFrame:
    """Two series whose values follow a price that changes at random."""
    random = np.random.default_rng(0)
    parts = []
    for name in names:
        price, noise = random.normal(5, 1, HOURS), random.normal(size=(3, HOURS))
        parts.append(
            pd.DataFrame(
                {
                    "id": name,
                    "ds": pd.date_range("2024-01-01", periods=HOURS, freq="h"),
                    "y": 3 * price + 0.1 * noise[0],
                    "price": price,
                    "sky": np.where(noise[1] > 0, "sun", "rain"),
                    "wind": noise[2],
                    "open": noise[0] > 0,
                    "region": {"a": "north", "b": "south"}[name],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def panel() -> Panel:
    return read_frame(frame(), Reading(**KINDS))


@pytest.fixture
def small(settings: TrainingConfig) -> TrainingConfig:
    return settings.model_copy(update={"context": 16, "horizon": 4})


def test_covariates_are_fitted_on_training_rows(panel: Panel, small: TrainingConfig) -> None:
    prepared = prepare(small, panel)
    covariates = prepared.config.covariates
    assert covariates is not None
    prices = np.concatenate([table.covariates[:168, 0] for table in panel.tables
                             if table.covariates is not None])  # fmt: skip
    price, sky = covariates.future
    assert (price.mean, price.std) == (pytest.approx(prices.mean()), pytest.approx(prices.std()))
    assert sky.categories == ("rain", "sun")
    assert [each.name for each in covariates.past] == ["wind", "open"]
    assert covariates.static[0].categories == ("north", "south")
    # Past covariates are read and not forecast.
    assert (prepared.config.channels, prepared.config.targets) == (3, (0,))
    assert targets_of(small, panel.channels, panel.covariates) == ("y",)


@pytest.mark.parametrize(
    ("arch", "model", "has_decoder"),
    [
        ("patchtst", {}, True),
        ("dlinear", {}, True),
        ("transformer", {"d_model": 8, "heads": 2, "d_ff": 8}, False),
        ("transformer", {"d_model": 8, "heads": 2, "covariate_decoder": True}, True),
    ],
)
def test_architectures_that_read_no_covariates_have_a_decoder(
    panel: Panel, small: TrainingConfig, arch: str, model: dict[str, object], has_decoder: bool
) -> None:
    own = small.model if arch == "patchtst" else {}
    settings = small.model_copy(update={"arch": arch, "model": own | model})
    assert prepare(settings, panel).config.covariate_decoder is has_decoder
    plain = replace(panel, covariates=None)
    assert prepare(small, plain).config.covariate_decoder is False


def test_a_model_learns_from_the_price_of_the_horizon(
    panel: Panel, small: TrainingConfig, tmp_path: Path
) -> None:
    settings = small.model_copy(update={"epochs": 8})
    with_price = train(settings, panel, tmp_path / "with").info.test
    tables = tuple(replace(one, covariates=None, static=None) for one in panel.tables)
    plain = train(settings, Panel(tables), tmp_path / "plain").info.test
    assert with_price is not None
    assert plain is not None
    assert with_price.model.mae < 0.6 * plain.model.mae


def test_a_past_covariate_is_no_target(panel: Panel, small: TrainingConfig) -> None:
    settings = small.model_copy(update={"target": ("wind",)})
    with pytest.raises(TrainingError, match="target: 'wind' is a covariate"):
        prepare(settings, panel)


def test_categories_of_later_rows_are_refused_or_others(small: TrainingConfig) -> None:
    table = frame("a")
    table.loc[HOURS - 1, "sky"] = "hail"
    table.loc[HOURS - 2, "open"] = True
    panel = read_frame(table, Reading(future_covariates=("sky",), channels=("y",)))
    with pytest.raises(DataError, match=r"'hail' is no category .* first at 2024-01-10T23:00:00"):
        prepare(small, panel)
    prepared = prepare(small.model_copy(update={"unseen_categories": "other"}), panel)
    assert prepared.config.covariates is not None
    assert prepared.config.covariates.future[0].other
    codes = prepared.test.batch(torch.tensor([len(prepared.test) - 1])).inputs.future_covariates
    assert codes is not None
    assert codes[0, -1].tolist() == [2]


def test_covariates_that_give_the_target_are_refused_unless_confirmed(
    small: TrainingConfig,
) -> None:
    table = frame()
    table["cost"] = 2 * table["y"]
    panel = read_frame(table, Reading(future_covariates=("cost",), channels=("y",)))
    with pytest.raises(DataError, match=r"y = 0\.5 cost"):
        prepare(small, panel)
    prepare(small.model_copy(update={"target_copies": "allow"}), panel)
    past = read_frame(table, Reading(past_covariates=("cost",), channels=("y",)))
    prepare(small, past)


def test_refits_learn_from_covariates(panel: Panel, small: TrainingConfig) -> None:
    prepared = prepare(small, panel)
    found = refit_errors(small, prepared.panel, prepared, 1, torch.device("cpu"))
    assert found.errors.shape[-1] == 1


def test_an_interrupted_training_goes_on_with_the_same_covariates(
    panel: Panel, small: TrainingConfig, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train(small, panel, out, progress=Recorder(2))
    other = read_frame(frame(), Reading(**KINDS | {"future_covariates": ("price",)}))
    with pytest.raises(ResumeError, match="other settings"):
        train(small, other, out)
    counter = Recorder()
    train(small, panel, out, progress=counter)
    assert counter.epochs == [2, 3, 4]


def test_the_checkpoint_reads_its_table_again(small: TrainingConfig, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    table = frame()
    table.loc[:19, "sky"] = "fog"
    # A category of one row of the test split.
    table.loc[HOURS - 1, "sky"] = "hail"
    table.to_csv(path, index=False)
    settings = small.model_copy(update={"unseen_categories": "other"})
    kinds = {"future_covariates": "price", "past_covariates": "sky,open", "channels": "y"}
    panel = read(path, Reading(**kinds))
    out = tmp_path / "model"
    train(settings, panel, out)
    info, _ = load(out)
    assert info.channels == ("y", "sky=fog", "sky=rain", "sky=sun", "open")
    source = DataSource.recorded(info.data)
    assert source is not None
    again = source.read(info.channels, panel.frequency)
    prepared = prepare(settings, panel)
    windows = Windows.of(info.config, again, prepared.split.test, info.scaler)
    for ours, theirs in zip(windows[5].inputs, prepared.test[5].inputs, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or theirs is None or torch.equal(ours, theirs)


def test_windows_have_the_codes_of_the_model(panel: Panel, small: TrainingConfig) -> None:
    prepared = prepare(small, panel)
    categories = Covariate(name="sky", type="category", categories=("sun", "rain"))
    assert prepared.config.covariates is not None
    turned = prepared.config.covariates.model_copy(
        update={"future": (categories, Covariate(name="price"))}
    )
    config = prepared.config.model_copy(update={"covariates": turned})
    plain, other = (
        Windows.of(each, panel, prepared.split.test, prepared.scaler)[0].inputs.future_covariates
        for each in (prepared.config, config)
    )
    assert plain is not None
    assert other is not None
    torch.testing.assert_close(other[:, 1], plain[:, 0])
    torch.testing.assert_close(other[:, 0], 1 - plain[:, 1])
