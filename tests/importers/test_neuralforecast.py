"""Folders of NeuralForecast: their arguments, and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import Tensor

from foretell.bundle.covariates import Covariate, Covariates
from foretell.commands.import_ import command
from foretell.importers.convert import import_checkpoint
from foretell.importers.errors import ImporterError
from foretell.importers.neuralforecast import _names
from foretell.importers.neuralforecast_exogenous import (
    Readers,
    of_series,
    read_covariates,
    with_categories,
)
from foretell.importers.neuralforecast_families import FAMILIES
from foretell.importers.neuralforecast_folder import Member
from foretell.models.checkpoint import load
from foretell.models.config import ARCHITECTURES
from tests.importers.conformance import Reference, request
from tests.importers.neuralforecast import SERIES, walks
from tests.importers.neuralforecast_exogenous import Columns
from tests.service.client import Client

ARGUMENTS: dict[str, Any] = {
    "h": 3,
    "input_size": 8,
    "moving_avg_window": 5,
    "scaler_type": "identity",
    "loss": {"__nf__": "loss", "cls": "MAE", "args": {"horizon_weight": None}},
}
SETTINGS: dict[str, Any] = {"h": 3, "freq": "h", "local_scaler_type": None, "target_col": "sales"}


NORMAL: dict[str, Any] = {"cls": "DistributionLoss", "args": {"distribution": "Normal"}}


def weights(outputs: int = 3) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        f"linear_{part}.{kind}": torch.randn(*shape)
        for part in ("season", "trend")
        for kind, shape in (("weight", (outputs, 8)), ("bias", (outputs,)))
    }


def write(
    folder: Path,
    *,
    kind: str = "DLinear",
    name: str = "DLinear_0",
    settings: dict[str, Any] | None = None,
    state: dict[str, Tensor] | None = None,
    **arguments: Any,
) -> Path:
    """A folder as `nf.save` writes it, with a DLinear."""
    folder.mkdir(exist_ok=True)
    written = {"nf_format": "2", "configuration": SETTINGS | (settings or {})}
    (folder / "configuration.json").write_text(json.dumps(written))
    header = {"model_class": kind, "hyper_parameters": json.dumps(ARGUMENTS | arguments)}
    save_file(state or weights(), folder / f"{name}.safetensors", metadata=header)
    return folder


def adopt(folder: Path, *options: str) -> Result:
    given = ["--from", "neuralforecast", "--out", str(folder.parent / "out"), *options]
    return CliRunner().invoke(command, [str(folder), *given])


def refused(folder: Path, *options: str) -> str:
    result = adopt(folder, *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert not (folder.parent / "out").exists()
    return result.stderr


def test_arguments_of_the_folder_are_not_required(tmp_path: Path) -> None:
    result = adopt(write(tmp_path / "saved"))
    assert result.exit_code == 0, result.output
    assert "configuration.json" in result.stdout
    info, model = load(tmp_path / "out")
    assert (info.channels, info.frequency, info.scaler.std) == (("sales",), "h", (1.0,))
    assert (info.config.context, info.config.horizon, info.config.window_norm) == (8, 3, None)
    found = model(torch.ones(1, 8, 1))[0, :, 0]
    state = weights()
    expected = state["linear_trend.weight"].sum(1) + state["linear_trend.bias"]
    torch.testing.assert_close(found, expected + state["linear_season.bias"])


def test_options_go_before_the_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "saved", settings={"freq": 1})
    assert "--frequency" in refused(folder)
    options = ["--frequency", "D", "--channels", "rain", "--mean", "5", "--std", "2"]
    assert adopt(folder, *options).exit_code == 0
    info = load(tmp_path / "out").info
    assert (info.channels, info.frequency, info.scaler.mean) == (("rain",), "D", (5.0,))
    assert adopt(write(folder), "--frequency", "15min", "--overwrite").exit_code == 0
    assert load(tmp_path / "out").info.frequency == "15min"


@pytest.mark.parametrize("scaler", [None, "standard", "robust", "minmax", "minmax1", "invariant"])
def test_scalers(tmp_path: Path, scaler: str | None) -> None:
    assert adopt(write(tmp_path / "saved", scaler_type=scaler)).exit_code == 0
    assert load(tmp_path / "out").info.config.window_norm == scaler


def implicit(size: int = 4) -> dict[str, Tensor]:
    """State of a loss with an embedding of quantile levels in cosines."""
    torch.manual_seed(1)
    layers = {
        "quantile_layer.output_layer.0": (size, size),
        "quantile_layer.output_layer.2": (1, size),
        "output_layer.0": (1, 1),
    }
    found = {f"loss.{name}.weight": torch.randn(*shape) for name, shape in layers.items()}
    found |= {f"loss.{name}.bias": torch.randn(shape[0]) for name, shape in layers.items()}
    slopes = {"quantile_layer.output_layer.1": 0.1, "output_layer.1": 0.3}
    found |= {f"loss.{name}.weight": torch.tensor([slope]) for name, slope in slopes.items()}
    return found | {"loss.quantile_layer.integers": torch.arange(size)}


USUAL = tuple(step / 20 for step in range(1, 20))


@pytest.mark.parametrize(
    ("loss", "kept", "options", "head", "levels", "message"),
    [
        (NORMAL, {}, (), "neuralforecast-normal", None, "DistributionLoss of Normal"),
        ({"cls": "MQLoss"}, {}, (), "quantiles", (0.1, 0.5, 0.9), "MQLoss of 0.1, 0.5, 0.9"),
        ({"cls": "HuberMQLoss"}, {}, (), "quantiles", (0.1, 0.5, 0.9), "HuberMQLoss of 0.1, 0.5"),
        ({"cls": "IQLoss"}, implicit(), (), "implicit-quantiles", USUAL, "the usual ones"),
        (
            {"cls": "HuberIQLoss"},
            implicit(),
            ("--set=levels=0.2,0.5,0.99",),
            "implicit-quantiles",
            (0.2, 0.5, 0.99),
            "--set",
        ),
    ],
)
def test_losses_are_heads(
    tmp_path: Path,
    loss: dict[str, Any],
    kept: dict[str, Tensor],
    options: tuple[str, ...],
    head: str,
    levels: tuple[float, ...] | None,
    message: str,
) -> None:
    outputs = {"neuralforecast-normal": 6, "quantiles": 9}.get(head, 3)
    kept = kept | {"loss.quantiles": torch.tensor([0.5, 0.1, 0.9])}
    # Other state of a loss is not used.
    kept |= {"valid_loss.quantiles": torch.tensor([0.5])}
    result = adopt(write(tmp_path / "saved", state=weights(outputs) | kept, loss=loss), *options)
    assert result.exit_code == 0, result.output
    assert message in result.stdout
    config = load(tmp_path / "out").info.config
    assert (config.head, config.levels) == (head, levels)


@pytest.mark.parametrize("text", ["0.1,0.9", "0.5,0.1", "0,0.5", "0.5,x", ""])
def test_invalid_levels_are_refused(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "saved", state=weights() | implicit(), loss={"cls": "IQLoss"})
    message = f"levels {text}: expected numbers between 0 and 1, ascending, with 0.5 among them"
    assert message in refused(folder, f"--set=levels={text}")


def test_levels_are_refused_for_other_losses(tmp_path: Path) -> None:
    message = refused(write(tmp_path / "saved"), "--set=levels=0.1,0.5")
    assert "levels: only for the losses IQLoss and HuberIQLoss, this model has MAE" in message


@pytest.mark.parametrize(("name", "size"), [("NegativeBinomial", 6), ("Poisson", 3)])
def test_counts_refuse_a_scaler(tmp_path: Path, name: str, size: int) -> None:
    loss = {"cls": "DistributionLoss", "args": {"distribution": name}}
    folder = write(tmp_path / "saved", state=weights(size), loss=loss)
    assert "counts are trained without a scaler" in refused(folder, "--mean", "5", "--std", "2")
    assert adopt(folder).exit_code == 0


def test_default_context_is_three_horizons(tmp_path: Path) -> None:
    state = {key: each[..., :3] if each.ndim == 1 else each for key, each in weights().items()}
    state |= {key: torch.zeros(3, 9) for key in state if key.endswith("weight")}
    assert adopt(write(tmp_path / "saved", state=state, input_size=-1)).exit_code == 0
    assert load(tmp_path / "out").info.config.context == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "NHITS"}, "a NHITS; expected one of PatchTST, DLinear, iTransformer, "),
        (
            {"hist_exog_list": ["price", "promo"]},
            "hist_exog_list price, promo: exogenous columns of DLinear are not served; those of "
            "TimeXer (hist_exog_list, stat_exog_list), VanillaTransformer (futr_exog_list), "
            "Autoformer (futr_exog_list), TiDE (futr_exog_list, hist_exog_list, stat_exog_list) "
            "are",
        ),
        (
            {"kind": "iTransformer", "n_series": 2, "futr_exog_list": ["price"]},
            "futr_exog_list price: exogenous columns of iTransformer are not served; those of",
        ),
        (
            {"kind": "Autoformer", "stat_exog_list": ["size"]},
            "stat_exog_list size: exogenous columns of Autoformer are not served; those of",
        ),
        ({"exclude_insample_y": True}, "exclude_insample_y: it does not read the series"),
        (
            {"settings": {"local_scaler_type": "boxcox"}},
            "local_scaler_type boxcox: expected one of standard, robust, robust-iqr, minmax; train",
        ),
        (
            {"settings": {"local_scaler_type": "robust"}, "scaler_type": "minmax"},
            "local_scaler_type robust around scaler_type minmax: one of the two is served",
        ),
        (
            {"settings": {"local_scaler_type": "robust"}, "loss": NORMAL, "state": weights(6)},
            "local_scaler_type robust around a distribution: the library undoes it on samples",
        ),
        ({"loss": {"cls": "GMM"}}, "loss GMM: expected DistributionLoss, MQLoss, "),
        (
            {"loss": {"cls": "IQLoss"}},
            "loss.quantile_layer.output_layer.0.bias is missing, which determines the quantiles",
        ),
        (
            {
                "loss": {"cls": "IQLoss"},
                "state": weights() | implicit() | {"loss.output_layer.0.weight": torch.ones(2, 1)},
            },
            "loss.output_layer.0.weight is [2, 1], expected [1, 1]",
        ),
        ({"loss": {"cls": "MQLoss"}}, "loss.quantiles: expected the levels of MQLoss"),
        (
            {
                "loss": {"cls": "MQLoss"},
                "state": weights(6) | {"loss.quantiles": torch.tensor([0.1, 0.9])},
            },
            "levels: expected the median, 0.5, among them, which is the forecast; got 0.1, 0.9",
        ),
        (
            {"kind": "iTransformer", "n_series": 2, "loss": {"cls": "MQLoss"}},
            "loss MQLoss of several series: the library takes quantiles of one for those of others",
        ),
        ({"loss": None}, "loss None: expected DistributionLoss"),
        (
            {"loss": {"cls": "DistributionLoss", "args": {"distribution": "Tweedie"}}},
            "loss DistributionLoss of Tweedie: expected one of Normal, StudentT, NegativeBinomial",
        ),
        ({"loss": NORMAL}, "linear_season.bias is [3], expected [6]"),
        ({"scaler_type": "log"}, "scaler_type log: expected one of identity, "),
        ({"moving_avg_window": 4}, "moving_average: expected an odd number, got 4"),
        ({"input_size": "8"}, "an argument is of another type: "),
        ({"h": 4}, "linear_season.bias is [3], expected [4]"),
        ({"state": {"linear_trend.bias": torch.zeros(3)}}, "missing (3):"),
        ({"state": weights() | {"extra": torch.zeros(1)}}, "unexpected (1):\n    extra [1]"),
        (
            {"state": weights() | {"linear_trend.bias": torch.tensor([1.0, float("nan"), 0.0])}},
            "linear_trend.bias has values that are not finite",
        ),
    ],
)
def test_unsupported_settings_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in refused(write(tmp_path / "saved", **changes))


COLUMNS: dict[str, Any] = {
    "futr_exog_list": ["price", "day"],
    "hist_exog_list": ["visits"],
    "stat_exog_list": ["size", "region"],
    "cat_exog_list": ["region", "day"],
}
VOCABULARY = {"day": {"fri": 2, "mon": 1}, "region": {"__nf__": "mapping", "items": [[7, 1]]}}


def columns(changes: dict[str, Any], settings: dict[str, Any]) -> Member:
    vocabulary = {"categorical_vocab_": VOCABULARY}
    return Member(Path("x"), "TiDE", COLUMNS | changes, {}, vocabulary | settings)


KINDS: dict[str, Readers] = {"TiDE": {"future": ("a",), "past": (), "static": ("b",)}}


def test_covariates_are_exogenous_columns_numbers_first() -> None:
    assert read_covariates(columns({}, {}), KINDS) == Covariates(
        future=(
            Covariate(name="price"),
            Covariate(name="day", type="category", categories=("mon", "fri")),
        ),
        past=(Covariate(name="visits"),),
        static=(
            Covariate(name="size"),
            Covariate(name="region", type="category", categories=("7",)),
        ),
    )


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({"hist_exog_list": ["price"]}, {}, "price: is in two lists of columns; train with it in"),
        (
            {"cat_exog_list": ["visits"]},
            {},
            "cat_exog_list visits: categories of hist_exog_list are not served",
        ),
        (
            {},
            {"local_scaler_type": "robust"},
            "local_scaler_type robust: it scales exogenous columns by each table",
        ),
        (
            {},
            {"local_static_scaler_type": "minmax"},
            "local_static_scaler_type minmax: it scales exogenous columns",
        ),
        ({}, {"categorical_vocab_": {}}, "categorical_vocab_ of day: expected its categories"),
        (
            {},
            {"categorical_vocab_": VOCABULARY | {"day": {"mon": 1, "fri": 3}}},
            "configuration.json: categorical_vocab_ of day: expected its categories",
        ),
    ],
)
def test_exogenous_columns_that_are_refused(
    changes: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImporterError, match=re.escape(message)):
        read_covariates(columns(changes, settings), KINDS)


def test_series_that_are_read_together_have_covariates_each() -> None:
    each = Covariates(
        past=(Covariate(name="visits"), Covariate(name="sold")),
        static=(Covariate(name="size"), Covariate(name="age")),
    )
    found = of_series(each, ("a", "b"))
    past = ["visits of a", "visits of b", "sold of a", "sold of b"]
    assert [one.name for one in found.past] == past
    static = ["size of a", "age of a", "size of b", "age of b"]
    assert [one.name for one in found.static] == static
    assert of_series(each, ("y",)) == each
    assert of_series(Covariates(), None) == Covariates()
    with pytest.raises(ImporterError, match=r"configuration.json: has no ids of the series"):
        of_series(each, None)


def test_scaler_of_static_columns_matters_only_with_some() -> None:
    found = columns(
        {"stat_exog_list": [], "cat_exog_list": []}, {"local_static_scaler_type": "minmax"}
    )
    assert len(read_covariates(found, KINDS).future) == 2


def test_tables_of_categories_are_multiplied_into_the_weights() -> None:
    torch.manual_seed(0)
    covariates = read_covariates(columns({}, {}), KINDS)
    table, weight = torch.randn(4, 3), torch.randn(5, 1 + 3)
    state = {"futr_cat_embeddings.0.weight": table, "reads": weight, "other": weight}
    state["stat_cat_embeddings.0.weight"] = torch.randn(2, 1)
    found = with_categories(state, covariates, {"future": ("reads", "absent")})
    assert found.keys() == {"reads", "other"}
    features = torch.tensor([[0.5, 0, 1]])
    expected = torch.cat([torch.tensor([[0.5]]), table[2:3]], dim=1) @ weight.T
    torch.testing.assert_close(features @ found["reads"].T, expected)
    assert found["other"] is weight
    del state["stat_cat_embeddings.0.weight"]
    with pytest.raises(ImporterError, match=r"stat_cat_embeddings.* a table of 2"):
        with_categories(state, covariates, {})
    state["futr_cat_embeddings.0.weight"] = table[:2]
    with pytest.raises(ImporterError, match=r"futr_cat_embeddings.* a table of 3"):
        with_categories(state, covariates, {})


def test_an_argument_that_is_not_in_the_header(tmp_path: Path) -> None:
    folder = write(tmp_path / "saved", kind="PatchTST")
    assert "its header lacks hidden_size, dropout, " in refused(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("configuration.json", None, "configuration.json: No such file or directory; nf.save"),
        ("configuration.json", b"{", "configuration.json: not what nf.save writes"),
        ("configuration.json", b"[]", "configuration.json: not what nf.save writes"),
        (
            "configuration.json",
            b'{"nf_format": "3", "configuration": {}}',
            "configuration.json: format 3, expected 2",
        ),
        ("DLinear_0.safetensors", None, "holds no model; nf.save writes NAME_0.safetensors"),
        ("DLinear_0.safetensors", b"12345678{}", "DLinear_0.safetensors: damaged or cut off: "),
    ],
)
def test_a_broken_folder_is_refused(
    tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    folder = write(tmp_path / "saved")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    assert message in refused(folder)


def test_weights_without_arguments_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "saved")
    save_file(weights(), folder / "DLinear_0.safetensors")
    assert "its header has no class and arguments" in refused(folder)


def test_pickles_of_earlier_versions_are_refused_with_a_remedy(tmp_path: Path) -> None:
    folder = write(tmp_path / "saved")
    (folder / "configuration.json").unlink()
    (folder / "DLinear_0.ckpt").write_bytes(b"PK")
    assert "load it with NeuralForecast 3.2 or newer where it was made, and save" in refused(folder)


def test_a_model_is_chosen(tmp_path: Path) -> None:
    folder = write(tmp_path / "saved")
    write(folder, name="other_0", scaler_type="robust")
    # Files of the library that are not models.
    for name in ("configuration", "dataset"):
        save_file({"a": torch.zeros(1)}, folder / f"{name}.safetensors")
    message = refused(folder)
    assert "several models; choose one with --alias: DLinear_0, other_0" in message
    message = refused(folder, "--alias", "other")
    assert "no such model; expected one of DLinear_0, other_0" in message
    assert adopt(folder, "--alias", "other_0").exit_code == 0
    assert load(tmp_path / "out").info.config.window_norm == "robust"


def test_ids_of_series_that_are_read_together() -> None:
    uids = {"__nf__": "series", "data": {"__nf__": "index", "values": ["a", "b"]}}
    found = _names({"uids": uids}, 2, several=True)
    assert found is not None
    assert found.value == ("a", "b")
    assert _names({"uids": uids}, 3, several=True) is None
    assert _names({"uids": None}, 2, several=True) is None


def test_every_field_is_a_field_of_the_architecture() -> None:
    for family in FAMILIES.values():
        names = set(filter(None, family.fields.values()))
        assert names <= set(ARCHITECTURES[family.architecture].model_fields)


def test_past_covariates_are_channels_behind_the_target(refer: Callable[[str], Reference]) -> None:
    request = refer("neuralforecast exogenous tide").request
    info = import_checkpoint(request).info
    assert info.channels == ("y", "visits", "sold")
    assert info.config.targets == (0,)
    assert info.config.covariates is not None
    assert [each.name for each in info.config.covariates.past] == ["visits", "sold"]
    assert [each.name for each in info.config.covariates.future] == ["promo", "price"]
    with pytest.raises(ImporterError, match="--channels: hist_exog_list names channels of this mo"):
        import_checkpoint(replace(request, channels=("y", "a", "b")))


def test_data_with_covariates_measures_the_model(
    refer: Callable[[str], Reference], tmp_path: Path
) -> None:
    columns, values = Columns(SERIES, 120, seed=5), np.concatenate([walks(), walks()], axis=1)
    table = columns.table(values, slice(None)).merge(columns.statics(), on="unique_id")
    table.to_csv(tmp_path / "sales.csv", index=False)
    split = {"split": "0.4,0.3,0.3"}
    request = replace(refer("neuralforecast exogenous dense").request, arguments=split)
    found = import_checkpoint(replace(request, data=tmp_path / "sales.csv"))
    assert found.info.test is not None
    shuffled = table.assign(price=table["price"].sample(frac=1, random_state=0).to_numpy())
    shuffled.to_csv(tmp_path / "other.csv", index=False)
    other = import_checkpoint(replace(request, data=tmp_path / "other.csv"))
    assert other.info.test is not None
    assert other.info.test.model != found.info.test.model


def test_series_keep_their_names(served: Callable[[str], Client]) -> None:
    described = served("neuralforecast real itransformer").get("/models/model").json()
    assert described["channels"] == ["s00", "s01", "s02", "s03"]
    client = served("neuralforecast real dlinear")
    assert client.get("/models/model").json()["channels"] == ["y"]
    # The library would put zeros before a short history.
    answer = client.forecast(request(np.ones((1, 2, 1))))
    assert "17" in answer.text
    assert not answer.is_success or answer.json()["outputs"][0]["error"]


def test_quantile_beyond_the_trained_levels_is_refused(
    served: Callable[[str], Client],
) -> None:
    error = served("neuralforecast real levels").error(
        request(np.ones((1, 17, 1)), quantiles=[0.5, 0.95])
    )
    assert error["message"] == (
        "expected a level between 0.1 and 0.9, got 0.95: it forecasts no quantile "
        "that is further out"
    )
