"""Models that transformers trains and saves, and what it forecasts of windows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.importers.saved import Request
from foretell.models.layers.paths import levels, places
from tests.importers.conformance import START, Case, Reference

# Options that have a flag of their own.
_FLAGS = ("future_covariates", "static_covariates")
CHANNELS = ("load", "wind", "sun")
PATHS = 6
LAGGED: dict[str, Any] = {
    "context_length": 12,
    "prediction_length": 5,
    "lags_sequence": [1, 2, 9, 3],
    "d_model": 16,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
}
SIZES: dict[str, dict[str, Any]] = {
    "PatchTST": {
        "num_input_channels": 3,
        "context_length": 27,
        "prediction_length": 5,
        "patch_length": 6,
        "patch_stride": 4,
        "d_model": 8,
        "num_attention_heads": 2,
        "ffn_dim": 12,
        "num_hidden_layers": 2,
    },
    "TimeSeriesTransformer": LAGGED | {"num_parallel_samples": PATHS},
    # Its decoder reads more steps than its encoder, so that queries are cut. Large weights make the
    # lags matter.
    "Autoformer": LAGGED
    | {"prediction_length": 11, "label_length": 4, "moving_average": 5, "init_std": 0.1}
    | {"num_parallel_samples": 1},
}
_ONE: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}
_DATED = {"input_size": 3, "num_time_features": 2, "scaling": "std", **_ONE}
_CATEGORY: dict[str, Any] = {
    "cardinality": [4],
    "embedding_dimension": [3],
    "num_static_categorical_features": 1,
}
_STATIC = {"input_size": 2, "num_static_real_features": 2, **_CATEGORY}
# Covariates: two that are known ahead, a number with two static categories, or all of them.
_AHEAD: dict[str, Any] = {"num_dynamic_real_features": 2}
_VARIED: dict[str, Any] = {"num_static_real_features": 1, "num_static_categorical_features": 2}
_VARIED |= {"cardinality": [5, 3]}
NAMED = {"future_covariates": "price, promo"}
VARIED = {"static_covariates": "region, kind, size"}
DATED = {"time_features": "hour_of_day, day_of_week"}
CATEGORY = {"static_categorical": "2"}
_ALL_STATIC = {"static_categorical": "3", "static_real": "0.5,-2"}
_MEANS = {"num_parallel_samples": "0"}
_CROSSED: dict[str, Any] = {"channel_attention": True, "pre_norm": False}
_NLL: dict[str, Any] = {"loss": "nll", "num_hidden_layers": 1}
_COUNTED = {"distribution_output": "negative_binomial"}
# By name: the class, the changes of its config, and the arguments that no file has.
SERVED: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "crossed": (
        "PatchTST",
        _CROSSED
        | {"pooling_type": "max", "norm_type": "layernorm", "scaling": None}
        | {"num_hidden_layers": 1},
        {},
    ),
    "classed": (
        "PatchTST",
        _NLL | {"use_cls_token": True, "channel_attention": True, "share_embedding": False},
        {},
    ),
    "counts": ("PatchTST", _NLL | _COUNTED | {"scaling": "mean"}, {}),
    "paths": ("TimeSeriesTransformer", _DATED, DATED),
    "means": (
        "TimeSeriesTransformer",
        _ONE | _CATEGORY | {"distribution_output": "normal"},
        CATEGORY | _MEANS,
    ),
    "lags": ("Autoformer", _DATED, DATED),
    "covariates": ("TimeSeriesTransformer", _ONE | _AHEAD | _VARIED, NAMED | VARIED),
    "covariates by lags": ("Autoformer", _DATED | _AHEAD | _VARIED, DATED | NAMED | VARIED),
    "counts by lags": (
        "Autoformer",
        _ONE | _CATEGORY | _COUNTED | {"prediction_length": 5},
        CATEGORY,
    ),
}
# The age of a series follows the calendar features; the category has its own width.
_AGED: dict[str, Any] = {"input_size": 2, "num_time_features": 3, "num_dynamic_real_features": 1}
_AGED |= {"embedding_dimension": [4, 1], "num_static_real_features": 0}
_COVARIATES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "ahead": (_AHEAD, NAMED),
    "ahead, the same static ones": (_AHEAD | _STATIC, NAMED | _ALL_STATIC),
    "static": (_VARIED | {"input_size": 3, "scaling": "std"}, VARIED),
    "aged": (
        _VARIED | _AGED,
        DATED | {"future_covariates": "age,price", "static_covariates": "region,kind"},
    ),
}
_PATCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "crossed twice": _CROSSED | {"use_cls_token": True},
    "normal": {"loss": "nll", "distribution_output": "normal", "pooling_type": None},
    "flat": {"pooling_type": None, "scaling": None, "bias": False, "activation_function": "relu"},
    "random": {"positional_encoding_type": "random", "scaling": True, "norm_eps": 1e-3},
    "unknown scaling": {"scaling": "robust", "pre_norm": False, "use_cls_token": True},
    "one channel": {"num_input_channels": 1, "channel_attention": True, "norm_type": "layernorm"},
    "even": {"patch_length": 3, "patch_stride": 3, "pooling_type": "max"},
}
_STEPS: dict[str, dict[str, Any]] = {
    "several": {"input_size": 2, "activation_function": "relu"},
    "unscaled": {"input_size": 3, "scaling": None, "lags_sequence": [7]},
    "deep": {"decoder_layers": 3, "scaling": True, "decoder_attention_heads": 8},
    "as long as the horizon": {"context_length": None, "lags_sequence": [2, 5]},
    "normal": {"distribution_output": "normal", "scaling": "std", "decoder_layers": 1},
    "static": _STATIC,
}
_LAGS: dict[str, dict[str, Any]] = {
    "several, normal": {"input_size": 2, "distribution_output": "normal"},
    "one lag": {"scaling": False, "lags_sequence": [7], "activation_function": "relu"},
    "deep": {"decoder_layers": 3, "scaling": "std", "decoder_attention_heads": 8},
    "odd lengths": {"context_length": 13, "label_length": 2, "moving_average": 25},
    "label of all": {"label_length": 12, "autocorrelation_factor": 1},
    "as long as the horizon": {"context_length": None, "prediction_length": 8},
    "static": _STATIC,
    "counts in several": {"input_size": 2, "distribution_output": "negative_binomial"},
}
FURTHER = {
    f"{kind} {name}{', means' * bool(means)}": (
        kind,
        changes,
        {**(_ALL_STATIC if changes is _STATIC else {}), **means},
    )
    for kind, table, ways in (
        ("PatchTST", _PATCHES, [{}]),
        ("TimeSeriesTransformer", _STEPS, [{}, _MEANS]),
        ("Autoformer", _LAGS, [{}]),
    )
    for name, changes in table.items()
    for means in ways
}
FURTHER |= {
    f"{kind} with covariates {name}": (kind, changes, options)
    for kind in ("TimeSeriesTransformer", "Autoformer")
    for name, (changes, options) in _COVARIATES.items()
}


def library() -> Any:
    return pytest.importorskip("transformers", reason="the library that saves the folders")


def walks(count: int, steps: int, channels: int) -> Tensor:
    return 10 + torch.randn(count, steps, channels).cumsum(dim=1)


def windows(context: int, channels: int) -> Tensor:
    """32 windows: zeros, constant, constant to the end, large, negative, and others. In the second
    half values are missing: at both ends, in runs, and single ones.
    """
    torch.manual_seed(1)
    found = walks(16, context, channels)
    found[0], found[1] = 0, 3
    found[2, 1:, 0] = found[2, 0, 0]
    found[3] *= 1e4
    found[4] *= -1
    lacking = found.clone()
    lacking[1, 0] = lacking[2, -1] = lacking[3, 4:9] = torch.nan
    lacking[4, : context // 2] = lacking[5, -4:] = torch.nan
    lacking[6, torch.arange(context) != context - 5] = torch.nan
    torch.manual_seed(2)
    lacking[7:][torch.rand(lacking[7:].shape) < 0.3] = torch.nan
    return torch.cat([found, lacking])


@cache
def _trained(kind: str, changes: str) -> Any:
    transformers = library()
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES[kind] | json.loads(changes))
    model = getattr(transformers, f"{kind}ForPrediction")(config)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    context, channels = shape(model)
    for _ in range(3):
        rows = walks(8, context + config.prediction_length, channels)
        rows = rows.abs().round() if config.distribution_output == "negative_binomial" else rows
        given = library_inputs(model, rows[:, :context], None, future=rows[:, context:])
        optimizer.zero_grad()
        model(**given).loss.backward()
        optimizer.step()
    return model.eval()


def train(kind: str, changes: Mapping[str, Any]) -> Any:
    """A model after a few steps of the library's own loss."""
    return _trained(kind, json.dumps(changes))


def save(model: Any, folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library().utils.logging, "_tqdm_active", False)
        model.save_pretrained(folder)
    return folder


def shape(model: Any) -> tuple[int, int]:
    """Steps and channels that it reads."""
    config = model.config
    if config.model_type == "patchtst":
        return config.context_length, config.num_input_channels
    return config.context_length + max(config.lags_sequence), config.input_size


def calendars(model: Any, count: int, start: str | None) -> tuple[Tensor, Tensor]:
    """Hours and days of the week from this time on, or features of no time."""
    config, (context, _) = model.config, shape(model)
    steps, dated = context + config.prediction_length, min(config.num_time_features, 2)
    features = torch.rand(count, steps, dated) - 0.5
    if start is not None:
        hours = np.datetime64(start, "h").astype(int) + np.arange(steps)
        # 1970-01-01 was a Thursday.
        known = np.stack([hours % 24 / 23, (hours // 24 + 3) % 7 / 6], axis=-1) - 0.5
        features = torch.tensor(known[:, :dated], dtype=torch.float32)
        features = features.expand(count, -1, -1)
    return features[:, :context], features[:, context:]


def covariates(model: Any, count: int) -> dict[str, Tensor]:
    """Codes of covariates, by the name of their input; those ahead are not of the calendar."""
    config, (context, _) = model.config, shape(model)
    ahead = config.num_time_features + config.num_dynamic_real_features
    ahead -= min(config.num_time_features, 2)
    torch.manual_seed(3)
    steps = torch.randn(count, context + config.prediction_length, ahead).cumsum(dim=1)
    categories = config.num_static_categorical_features
    drawn = [torch.randint(n, (count, 1)).float() for n in (config.cardinality or [])[:categories]]
    drawn.append(torch.randn(count, config.num_static_real_features))
    return {
        "history_covariates": steps[:, :context],
        "future_covariates": steps[:, context:],
        "static_covariates": torch.cat(drawn, dim=1),
    }


def library_inputs(
    model: Any, history: Tensor, start: str | None, *, future: Tensor, category: int | None = 2
) -> dict[str, Any]:
    """Inputs of the library for windows, from this time on or at any; NaN is missing.

    Without a category, static features are those of `covariates`.
    """
    config, count = model.config, len(history)
    given = {
        "past_values": history.nan_to_num(),
        "past_observed_mask": ~history.isnan(),
        "future_values": future,
    }
    if config.model_type == "patchtst":
        return given
    if config.input_size == 1:
        given = {name: one[..., 0] for name, one in given.items()}
    known = covariates(model, count)
    for name, dated in zip(("past", "future"), calendars(model, count, start), strict=True):
        ahead = known["history_covariates" if name == "past" else "future_covariates"]
        given[f"{name}_time_features"] = torch.cat([dated, ahead], dim=2)
    categories = config.num_static_categorical_features
    static = known["static_covariates"]
    if categories:
        varied = static[:, :categories].long()
        given["static_categorical_features"] = (
            varied if category is None else torch.full_like(varied, category)
        )
    if config.num_static_real_features:
        same = torch.tensor([[0.5, -2]])[:, : config.num_static_real_features]
        given["static_real_features"] = (
            static[:, categories:] if category is None else same.expand(count, -1)
        )
    return given


def parameters(drawn: Any) -> Tensor:
    """Parameters of one of the library's distributions; also loc and scale of a transformed one."""
    found = drawn.base_dist if isinstance(drawn, torch.distributions.Independent) else drawn
    if isinstance(found, torch.distributions.NegativeBinomial):
        return torch.stack([found.total_count, found.logits], dim=-1)
    base, (shift,) = found.base_dist, found.transforms
    base = getattr(base, "base_dist", base)
    names = ("df", "loc", "scale") if hasattr(base, "df") else ("loc", "scale")
    named = {name: getattr(base, name) for name in names}
    named["loc"] = named["loc"] * shift.scale + shift.loc
    named["scale"] = named["scale"] * shift.scale
    return torch.stack(torch.broadcast_tensors(*named.values()), dim=-1)


def _of_patches(model: Any, history: Tensor) -> tuple[Tensor, Tensor | None]:
    with torch.inference_mode():
        found = model(history.nan_to_num(), past_observed_mask=~history.isnan())
        if model.distribution_output is None:
            return found.prediction_outputs, None
        # The library adds to the logits of a negative binomial in place.
        outputs = tuple(one.clone() for one in found.prediction_outputs)
        drawn = model.distribution_output.distribution(outputs, found.loc, found.scale)
        return drawn.mean, parameters(drawn)


def path(
    model: Any,
    history: Tensor,
    start: str | None = None,
    category: int | None = 2,
    order: NDArray[np.float64] | None = None,
) -> Tensor:
    """Quantiles of the library's distributions, each of which is the history of later steps; means
    without levels.
    """
    stats = pytest.importorskip("scipy.stats", reason="what quantiles are compared with")
    config = model.config
    future = torch.zeros(len(history), config.prediction_length, config.input_size)
    for step in range(config.prediction_length):
        given = library_inputs(model, history, start, future=future, category=category)
        with torch.inference_mode():
            found = model(**given)
        if order is None:
            drawn = model.output_distribution(found.params, loc=found.loc, scale=found.scale)
            future[:, step] = drawn.mean[:, step].reshape(future[:, step].shape)
            continue
        *df, loc, scale = (
            one[:, step].double().numpy().reshape(future[:, step].shape) for one in found.params
        )
        known = stats.t(*df, loc, scale) if df else stats.norm(loc, scale)
        value = torch.tensor(known.ppf(order[step]))
        own = (one.reshape(future[:, step].shape) for one in (found.scale, found.loc))
        future[:, step] = (value * next(own) + next(own)).float()
    return future


def _of_paths(model: Any, history: Tensor, start: str | None, category: int | None) -> Tensor:
    """Sample paths, sorted in each step, `[windows, …, paths]`."""
    horizon, channels = model.config.prediction_length, model.config.input_size
    orders = np.array(places(horizon * channels, PATHS)).reshape(horizon, channels, PATHS)
    known = np.array(levels(PATHS))[orders]
    found = [path(model, history, start, category, known[..., one]) for one in range(PATHS)]
    return torch.stack(found, dim=-1).sort(dim=-1).values


def _of_lags(
    model: Any, history: Tensor, start: str | None, category: int | None
) -> tuple[Tensor, Tensor]:
    """Parameters of the library's distributions, by window: it confuses lags of several windows."""
    from transformers import time_series_utils

    drawn, known = [], model.output_distribution
    squareplus = time_series_utils.DistributionOutput.squareplus

    def watched(*given: Any, **named: Any) -> Any:
        drawn.append(known(*given, **named))
        return drawn[-1]

    given = library_inputs(model, history, start, future=history, category=category)
    del given["future_values"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "output_distribution", watched)
        # In float32 it loses all digits of values far below 0.
        exact = staticmethod(lambda raw: squareplus(raw.double()).float())
        patch.setattr(time_series_utils.DistributionOutput, "squareplus", exact)
        for window in range(len(history)):
            model.generate(**{name: one[window : window + 1] for name, one in given.items()})
    form = (model.config.prediction_length, model.config.input_size)
    means = torch.stack([one.mean.reshape(form) for one in drawn])
    return means, torch.stack([parameters(one).reshape(*form, -1) for one in drawn])


def request_of(model: Any, folder: Path, options: Mapping[str, str]) -> Request:
    """The request that imports a model saved there."""
    return Request(
        folder,
        "huggingface",
        channels=CHANNELS[: shape(model)[1]],
        frequency="h",
        unscaled=True,
        future_covariates=options.get("future_covariates"),
        static_covariates=options.get("static_covariates"),
        arguments={name: each for name, each in options.items() if name not in _FLAGS},
    )


def refer(
    kind: str, changes: dict[str, Any], options: Mapping[str, str], folder: Path
) -> Reference:
    """Train and save a model, and forecast with the library."""
    model = train(kind, changes)
    history = windows(*shape(model))
    distribution: Tensor | None = None
    dated: tuple[Tensor, ...] = ()
    if kind == "PatchTST":
        forecast, distribution = _of_patches(model, history)
    else:
        varied = "static_covariates" in options
        category = None if varied else int(options.get("static_categorical", 2))
        start = START if model.config.num_time_features else None
        dated = calendars(model, len(history), start) if start else ()
        if kind == "Autoformer":
            forecast, distribution = _of_lags(model, history, start, category)
        elif options.get("num_parallel_samples") == "0":
            forecast = path(model, history, start, category)
        else:
            distribution = _of_paths(model, history, start, category)
            forecast = distribution.mean(dim=-1)
    known = None if distribution is None else distribution.numpy()
    request = request_of(model, save(model, folder), options)
    codes = _named(model, len(history), options)
    return Reference(request, history, forecast.numpy(), known, dated, covariates=codes)


def _named(model: Any, count: int, options: Mapping[str, str]) -> dict[str, Tensor]:
    """Codes of the covariates that have a name."""
    kinds = {"history": "future", "future": "future", "static": "static"}
    return {
        f"{name}_covariates": covariates(model, count)[f"{name}_covariates"]
        for name, kind in kinds.items()
        if f"{kind}_covariates" in options
    }


CASES = {
    f"huggingface {name}": Case(partial(refer, *of), name in SERVED)
    for name, of in (SERVED | FURTHER).items()
}
