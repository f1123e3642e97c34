"""Models with exogenous columns that NeuralForecast trains for the tests."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.importers.saved import Request
from tests.importers.conformance import Case, Reference
from tests.importers.neuralforecast import (
    CONTEXT,
    HORIZON,
    LAGS,
    ONE,
    QUIET,
    SERIES,
    STEPS,
    Floats,
    walks,
    windows,
)

WEATHERS, REGIONS = ("rain", "snow", "sun"), (7, 12)
_NORMAL = ("DistributionLoss", {"distribution": "Normal", "return_params": True, "num_samples": 2})
_LEVELS = ("MQLoss", {"level": [80]})
_DENSE: dict[str, Any] = {
    "hidden_size": 12,
    "decoder_output_dim": 5,
    "temporal_decoder_dim": 9,
    "temporal_width": 3,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
}
# Lists are neither in the order of the table nor in that of the alphabet.
_FUTURE = {"futr_exog_list": ["promo", "price"]}
_PAST = {"hist_exog_list": ["visits", "sold"]}
_STATIC = {"stat_exog_list": ["size", "age"]}
_KINDS = {"cat_exog_list": ["weather"], "categorical_cardinalities": {"weather": 5}}
_KINDS |= {"futr_exog_list": ["weather", "promo", "price"]}
_PLACES: dict[str, Any] = {
    "cat_exog_list": ["region", "weather"],
    "categorical_cardinalities": {"region": 2, "weather": 5},
    "futr_exog_list": ["weather", "price"],
    "stat_exog_list": ["region", "size"],
    "cat_emb_dim": 2,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "autoformer": ("Autoformer", LAGS | ONE | _FUTURE | {"scaler_type": "standard"}),
    "lags": ("Autoformer", LAGS | _KINDS | {"scaler_type": "revin", "loss": _NORMAL}),
    "transformer": ("VanillaTransformer", STEPS | ONE | _FUTURE | {"scaler_type": "robust"}),
    "steps": ("VanillaTransformer", STEPS | _KINDS | {"scaler_type": "invariant", "loss": _NORMAL}),
    "unscaled": ("VanillaTransformer", STEPS | _FUTURE),
    "tide": (
        "TiDE",
        _DENSE | _FUTURE | _PAST | _STATIC | {"scaler_type": "standard", "loss": _LEVELS},
    ),
    "dense": (
        "TiDE",
        _DENSE | _PAST | _PLACES | {"scaler_type": "minmax1", "loss": _LEVELS, "layernorm": False},
    ),
    "ahead": ("TiDE", _DENSE | _FUTURE | {"layernorm": False, "scaler_type": "robust"}),
    "behind": (
        "TiDE",
        _DENSE | _PAST | {"scaler_type": "revin", "loss": _NORMAL, "layernorm": False},
    ),
    "fixed": ("TiDE", _DENSE | _STATIC | {"layernorm": False, "num_encoder_layers": 1}),
    "bare": ("TiDE", _DENSE | {"scaler_type": "minmax", "layernorm": False}),
}
_TOGETHER: dict[str, Any] = {"n_series": SERIES, "hidden_size": 8, "n_heads": 2, "d_ff": 12}
_TOGETHER |= {"patch_len": 4, "e_layers": 2}
MODELS |= {
    "timexer": (
        "TimeXer",
        _TOGETHER | _PAST | _STATIC | {"scaler_type": "standard", "use_norm": True},
    ),
    "constant series": ("TimeXer", _TOGETHER | _STATIC | {"scaler_type": "minmax1"}),
    "series": ("TimeXer", _TOGETHER | _PAST | {"use_norm": False, "scaler_type": "robust"}),
    "alone": ("TimeXer", _TOGETHER),
}
SERVED = ("timexer", "autoformer", "transformer", "tide", "dense")


class Columns:
    """Exogenous columns of series `[series, time]`, static ones `[series]`."""

    def __init__(self, series: int, steps: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        price = random.normal(size=(series, steps)).cumsum(axis=1) + 20
        promo = (random.random((series, steps)) < 0.3).astype(float)
        # A price and a promotion that change in the horizon alone.
        price[0, :CONTEXT] = 4
        promo[1, :CONTEXT], promo[1, CONTEXT + 2 :] = 0, 1
        visits = random.normal(size=(series, steps)) * 100
        visits[2] = 5
        weather = np.array(WEATHERS)[random.integers(0, 3, (series, steps))]
        self.timed: dict[str, NDArray[Any]] = {
            "price": price.astype(np.float32),
            "promo": promo.astype(np.float32),
            "sold": random.normal(size=(series, steps)).cumsum(axis=1).astype(np.float32),
            "visits": visits.astype(np.float32),
            "weather": weather,
        }
        self.static: dict[str, NDArray[Any]] = {
            "age": random.normal(size=series).astype(np.float32),
            "region": np.array(REGIONS)[random.integers(0, 2, series)],
            "size": random.normal(size=series).astype(np.float32) * 3,
        }

    def part(self, series: slice) -> Columns:
        """The columns of some series."""
        found = copy(self)
        found.timed = {name: each[series] for name, each in self.timed.items()}
        found.static = {name: each[series] for name, each in self.static.items()}
        return found

    def table(self, values: Floats | None, steps: slice) -> pd.DataFrame:
        """Rows of some steps as the library takes them, series in another order."""
        count = len(self.timed["price"])
        times = pd.date_range("2024-01-01", periods=self.timed["price"].shape[1], freq="h")[steps]
        return pd.concat(
            [
                pd.DataFrame(
                    {"unique_id": f"s{i:02}", "ds": times}
                    | {name: each[i, steps] for name, each in self.timed.items()}
                    | ({} if values is None else {"y": values[i]})
                )
                for i in reversed(range(count))
            ]
        )

    def statics(self) -> pd.DataFrame:
        """Static columns as the library takes them."""
        names = [f"s{i:02}" for i in range(len(self.static["age"]))]
        # The library matches them by position, not by id.
        return pd.DataFrame({"unique_id": names} | self.static)


LEARNT = Columns(SERIES, 60, seed=3)
ASKED = Columns(16, CONTEXT + HORIZON, seed=4)


@cache
def _forecasts(folder: Path) -> dict[str, Floats]:
    """Train and save all models; by name `[16, horizon, columns]`, all that the library says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("neuralforecast")
        from neuralforecast import NeuralForecast
        from neuralforecast import models as kinds
        from neuralforecast.losses import pytorch as losses

        made = []
        for alias, (kind, arguments) in MODELS.items():
            criterion = arguments.get("loss", "MAE")
            name, given = criterion if isinstance(criterion, tuple) else (criterion, {})
            sizes = {"h": HORIZON, "input_size": CONTEXT, "alias": alias, "learning_rate": 0.01}
            own = {"loss": getattr(losses, name)(**given)}
            made.append(getattr(kinds, kind)(**{**sizes, **QUIET, **arguments, **own}))
        trained = NeuralForecast(models=made, freq="h")
        trained.fit(LEARNT.table(walks(), slice(None)), static_df=LEARNT.statics())
        forecasts, everyone = {}, trained.models
        for together in (1, SERIES):
            trained.models = [model for model in everyone if model.n_series == together]
            found = pd.concat([_predicted(trained, part) for part in _parts(together)])
            forecasts |= {model.alias: found for model in trained.models}
        # Models of distributions are saved after they have forecast.
        trained.models = everyone
        trained.save(str(folder))
    columns: dict[str, Floats] = {}
    for alias, found in forecasts.items():
        own = [name for name in found if name == alias or name.startswith(f"{alias}-")]
        columns[alias] = found[own].to_numpy(np.float32).reshape(16, HORIZON, -1)
    return columns


def _parts(together: int) -> list[slice]:
    """The series that are read at once, by their places."""
    size = 16 if together == 1 else together
    return [slice(start, start + size) for start in range(0, 16, size)]


def _predicted(trained: Any, series: slice) -> pd.DataFrame:
    part = ASKED.part(series)
    if not any(model.cat_exog_list for model in trained.models):
        # The library encodes the columns of these models alone.
        del part.timed["weather"]
    found: pd.DataFrame = trained.predict(
        part.table(windows()[series], slice(CONTEXT)),
        static_df=part.statics(),
        futr_df=part.table(None, slice(CONTEXT, None)),
    )
    return found


def refer(name: str, root: Path) -> Reference:
    """Train and save all models, and ask for the forecasts of one."""
    folder = root.parent / "neuralforecast exogenous"
    columns, arguments = _forecasts(folder)[name], MODELS[name][1]
    forecast, distribution = columns[..., :1], None
    match arguments.get("loss", "MAE")[0]:
        case "DistributionLoss":
            distribution = columns[:, :, None, -2:]
            forecast = distribution[..., 0]
        case "MQLoss":
            distribution = columns[:, :, None, [1, 0, 2]]
    together = arguments.get("n_series", 1)
    if together > 1:
        forecast = forecast.reshape(-1, together, HORIZON).swapaxes(1, 2)
    past = [ASKED.timed[each][:, :CONTEXT] for each in arguments.get("hist_exog_list", ())]
    rows = [each.reshape(-1, together, CONTEXT).swapaxes(1, 2) for each in (windows(), *past)]
    history = torch.from_numpy(np.concatenate(rows, axis=-1))
    request = Request(folder, "neuralforecast", member=f"{name}_0")
    return Reference(request, history, forecast, distribution, covariates=_codes(arguments))


def _codes(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Codes of covariates by their input: numbers first, then categories in their own order."""
    kinds = arguments.get("cat_exog_list", [])

    def joined(columns: list[str], values: Mapping[str, NDArray[Any]]) -> Tensor:
        names = [each for each in columns if each not in kinds]
        names += [each for each in kinds if each in columns]
        known = {"weather": WEATHERS, "region": REGIONS}
        found = [
            np.searchsorted(known[name], values[name]) if name in known else values[name]
            for name in names
        ]
        return torch.from_numpy(np.stack(found, axis=-1).astype(np.float32))

    codes: dict[str, Tensor] = {}
    if future := arguments.get("futr_exog_list"):
        steps = joined(future, ASKED.timed)
        codes["history_covariates"] = steps[:, :CONTEXT]
        codes["future_covariates"] = steps[:, CONTEXT:]
    if static := arguments.get("stat_exog_list"):
        codes["static_covariates"] = joined(static, ASKED.static).reshape(
            16 // arguments.get("n_series", 1), -1
        )
    return codes


CASES = {
    f"neuralforecast exogenous {name}": Case(partial(refer, name), name in SERVED)
    for name in MODELS
}
