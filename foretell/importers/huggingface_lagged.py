"""Models of Hugging Face's transformers whose tokens are values at lags."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from foretell.bundle.covariates import Covariate, Covariates
from foretell.data.reading import split_names
from foretell.importers.errors import ImporterError
from foretell.importers.huggingface_config import (
    Count,
    Length,
    SavedConfig,
    State,
    known_as,
)
from foretell.importers.keys import KeyMap, rows
from foretell.models.layers.feed_forward import Activation
from foretell.timeaxis.calendar import Feature

# Names in GluonTS, which the library's examples use, and our names of features.
_GLUONTS = {
    "second_of_minute": "second",
    "minute_of_hour": "minute",
    "hour_of_day": "hour",
    "week_of_year": "week",
    "month_of_year": "month",
}
_EMBEDDER = "model.embedder.embedders.{place}.weight"
# Options of values of a step and of all series.
_TIME, _CATEGORICAL, _REAL = "time_features", "static_categorical", "static_real"
# Flags that name covariates.
FUTURE, STATIC = "future_covariates", "static_covariates"
_ATTENTION = """
    q_proj.*    query.*
    k_proj.*    key.*
    v_proj.*    value.*
    out_proj.*  out.*
"""
_FEED_FORWARD = """
    fc1.*  feed_forward.expand.*
    fc2.*  feed_forward.contract.*
"""
_VALUE = "model.{}.value_embedding.value_projection.{}"
# Key of the static features of an Autoformer, which are part of each token.
_STATIC = "model.embedder.embedders"
_MOST_PATHS = 1000
# Attentions of the layers, by their names in the library.
_PARTS = {
    "encoder": {"self_attn": "attention"},
    "decoder": {"self_attn": "self_attention", "encoder_attn": "cross_attention"},
}


class LaggedModel(SavedConfig):
    """Configuration of a model with encoder and decoder whose tokens are lagged values."""

    hidden: ClassVar[frozenset[str]] = SavedConfig.hidden | {
        *("loss", "cardinality", "embedding_dimension")
    }

    # Keys of a layer besides attention and feed-forward network, and further keys of the model.
    encoder_keys: ClassVar[str]
    decoder_keys: ClassVar[str]
    further_keys: ClassVar[str] = ""

    input_size: Length = known_as("channels", 1)
    context_length: Length | None = None
    prediction_length: Length = Field(serialization_alias="horizon")
    lags_sequence: list[Length] = Field(
        default=[1, 2, 3, 4, 5, 6, 7], min_length=1, serialization_alias="value_lags"
    )
    loss: Literal["nll"] = "nll"
    num_time_features: Count = 0
    num_dynamic_real_features: Count = 0
    num_static_categorical_features: Count = 0
    num_static_real_features: Count = 0
    cardinality: list[Count] | None = None
    embedding_dimension: list[Count] | None = None
    d_model: Length = known_as("d_model", 64)
    encoder_layers: Length = known_as("encoder_layers", 2)
    encoder_attention_heads: Length = known_as("heads", 2)
    encoder_ffn_dim: Length = known_as("d_ff", 32)
    decoder_layers: Length = known_as("decoder_layers", 2)
    decoder_attention_heads: Length = known_as("decoder_heads", 2)
    decoder_ffn_dim: Length = known_as("decoder_d_ff", 32)
    activation_function: Activation = known_as("activation", "gelu")

    @property
    def steps(self) -> int:
        """Number of steps that the encoder reads."""
        return self.context_length or self.prediction_length

    @property
    def timed(self) -> int:
        """Number of features of a step that change with time."""
        return self.num_time_features + self.num_dynamic_real_features

    @property
    def widths(self) -> list[int]:
        """Features of each static category."""
        if not self.num_static_categorical_features:
            return []
        usual = [min(50, (count + 1) // 2) for count in self.cardinality or ()]
        return self.embedding_dimension or usual

    @override
    def fields(self, given: Mapping[str, str]) -> dict[str, Any]:
        calendar, future = self._timed_names(given)
        static = self._static_names(given)
        covariates = Covariates(
            future=tuple(Covariate(name=name) for name in future), static=static
        )
        return self._same() | {
            "context": self.steps + max(self.lags_sequence),
            "calendar": {"encoding": "scaled", "features": calendar} if calendar else None,
            "scaling": self.window_norm,
            "covariates": covariates if future or static else None,
            "embeddings": self.widths if static and self.widths else None,
        }

    def _timed_names(self, given: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Calendar features, and names of the future covariates behind them."""
        calendar, future = (
            split_names(given[name]) if name in given else [] for name in (_TIME, FUTURE)
        )
        if len(calendar) > self.num_time_features or len(calendar) + len(future) != self.timed:
            known = ", ".join(get_args(Feature))
            raise ValueError(
                f"num_time_features {self.num_time_features} and num_dynamic_real_features "
                f"{self.num_dynamic_real_features}: expected {self.timed} names in the order of "
                f"the training: features of the date ({known}) in --set {_TIME}, then the others "
                f"in {_flag(FUTURE)}; got {len(calendar)} and {len(future)}"
            )
        return _features(calendar), future

    def _static_names(self, given: Mapping[str, str]) -> tuple[Covariate, ...]:
        """Static covariates, categories first; none if all series share their values."""
        if STATIC not in given:
            self.static(given)
            return ()
        if fixed := given.keys() & {_CATEGORICAL, _REAL}:
            raise ValueError(f"{min(fixed)}: cannot be combined with {_flag(STATIC)}")
        categories, reals = self.num_static_categorical_features, self.num_static_real_features
        names = split_names(given[STATIC])
        if len(names) != categories + reals:
            raise ValueError(
                f"num_static_categorical_features {categories} and num_static_real_features "
                f"{reals}: {_flag(STATIC)}: expected {categories + reals} names, categories "
                f"first, got {len(names)}"
            )
        counts = (self.cardinality or [])[:categories]
        if len(counts) != categories or min(counts, default=1) < 1:
            raise ValueError(f"cardinality: expected {categories} numbers from 1 on, got {counts}")
        found = [
            Covariate(name=name, type="category", categories=tuple(map(str, range(count))))
            for name, count in zip(names, counts, strict=False)
        ]
        return *found, *(Covariate(name=name) for name in names[categories:])

    def static(self, given: Mapping[str, str]) -> tuple[list[int], list[float]]:
        """Static categories and numbers, which are the same for all series."""
        found = []
        for option, kind in ((_CATEGORICAL, "whole numbers"), (_REAL, "numbers")):
            words = split_names(given[option]) if option in given else []
            field = f"num_{option}_features"
            if len(words) != (count := getattr(self, field)):
                raise ValueError(
                    f"{field} {count}: {option}: expected {count} {kind}, the same for all series, "
                    f"got {len(words)}; {_flag(STATIC)} names those that differ"
                )
            found.append(words)
        try:
            return [int(word) for word in found[0]], [float(word) for word in found[1]]
        except ValueError as error:
            raise ValueError(f"static_categorical or static_real: {error}") from None

    @override
    def key_map(self) -> KeyMap:
        embedding = """
            value_embedding.value_projection.*  value.*
            embed_positions.weight              positions
            layernorm_embedding.*               norm.*
        """
        found = rows(self.further_keys)
        found.append((_EMBEDDER, "static_embeddings.{place}.weight"))
        found += rows("parameter_projection.proj.{parameter}.*  heads.{parameter}.*")
        for part, attentions in _PARTS.items():
            found += rows(embedding, f"model.{part}.", f"{part}_embedding.")
            published, ours = f"model.{part}.layers.{{layer}}.", f"{part}_layers.{{layer}}."
            for attention, name in attentions.items():
                found += rows(_ATTENTION, f"{published}{attention}.", f"{ours}{name}.")
            own = self.encoder_keys if part == "encoder" else self.decoder_keys
            found += rows(own + _FEED_FORWARD, published, ours)
        return KeyMap(f"{self.title} of transformers", found)

    def embedded(self, state: State, given: Mapping[str, str]) -> Tensor:
        """The static features as numbers in each token; removes their tables from `state`.

        It leaves out features that are covariates.
        """
        if STATIC in given:
            return torch.zeros(0)
        categories, reals = self.static(given)
        found = []
        for place, category in enumerate(categories):
            table = state.pop(key := _EMBEDDER.format(place=place), None)
            if table is None or table.ndim != 2:
                raise ImporterError(f"{key}: no table of static features")
            if not table.is_floating_point():
                raise ImporterError(
                    f"{key} is of whole numbers; save the model as it was before it was quantised"
                )
            if not 0 <= category < len(table):
                raise ImporterError(
                    f"static_categorical {category}: {key} has rows 0 to {len(table) - 1}"
                )
            found.append(table[category])
        return torch.cat([*found, torch.tensor(reals)])


class TimeSeriesTransformer(LaggedModel):
    """Configuration of a model whose forecasts are sampled step by step."""

    title: ClassVar[str] = "TimeSeriesTransformerForPrediction"
    model_type: ClassVar[str] = "time_series_transformer"

    distribution_output: Literal["student_t", "normal"] = "student_t"
    scaling: str | bool | None = "mean"
    num_parallel_samples: Annotated[int, Field(ge=0, le=_MOST_PATHS)] = 100

    encoder_keys: ClassVar[str] = """
        self_attn_layer_norm.*     attention_norm.*
        final_layer_norm.*         feed_forward_norm.*
    """
    decoder_keys: ClassVar[str] = """
        self_attn_layer_norm.*     self_norm.*
        encoder_attn_layer_norm.*  cross_norm.*
        final_layer_norm.*         feed_forward_norm.*
    """

    @override
    def fields(self, given: Mapping[str, str]) -> dict[str, Any]:
        return super().fields(given) | {
            "architecture": "huggingface-time-series-transformer",
            "samples": self._samples(given),
            "step_distribution": self.distribution_output.replace("_", "-"),
        }

    def _samples(self, given: Mapping[str, str]) -> int:
        """Number of paths to sample, from the option or else the file; 0 for the mean path."""
        if "num_parallel_samples" not in given:
            return self.num_parallel_samples
        text = given["num_parallel_samples"]
        if not text.isdecimal() or int(text) == 1 or int(text) > _MOST_PATHS:
            raise ValueError(f"num_parallel_samples {text}: expected 0, or 2 to {_MOST_PATHS}")
        return int(text)

    @override
    def prepare(self, state: State, given: Mapping[str, str]) -> State:
        """Fold the static features, which are the same for all windows, into a bias."""
        state = dict(state)
        static = self.embedded(state, given)
        named = sum(self.widths) + self.num_static_real_features - len(static)
        ends = [0, self.input_size * len(self.lags_sequence)]
        ends += [ends[1] + len(static)]
        ends += [ends[2] + named + 2 * self.input_size + self.timed]
        for part in _PARTS:
            weight = state.get(_VALUE.format(part, "weight"))
            bias = torch.zeros(self.d_model)
            if weight is not None and weight.shape == (self.d_model, ends[-1]):
                lagged, fixed, others = (weight[:, start:end] for start, end in pairwise(ends))
                state[_VALUE.format(part, "weight")] = torch.cat([lagged, others], dim=1)
                bias = (fixed.double() @ static.double()).float()
            state[_VALUE.format(part, "bias")] = bias
        return state


class Autoformer(LaggedModel):
    """Configuration of a model that forecasts distributions of all steps at once."""

    title: ClassVar[str] = "AutoformerForPrediction"
    model_type: ClassVar[str] = "autoformer"

    distribution_output: Literal["student_t", "normal", "negative_binomial"] = "student_t"
    scaling: str | bool | None = True
    label_length: Length = known_as("label", 10)
    moving_average: Length = known_as("moving_average", 25)
    autocorrelation_factor: Length = 3

    encoder_keys: ClassVar[str] = """
        self_attn_layer_norm.*        attention_norm.*
        final_layer_norm.layernorm.*  last_norm.norm.*
    """
    decoder_keys: ClassVar[str] = """
        self_attn_layer_norm.*        self_norm.*
        encoder_attn_layer_norm.*     cross_norm.*
        final_layer_norm.layernorm.*  last_norm.norm.*
        trend_projection.weight       trend_projection.convolution.weight
    """
    further_keys: ClassVar[str] = f"""
        model.decoder.seasonality_projection.*  projection.*
        {_STATIC}                               static
    """

    @override
    def check(self) -> None:
        super().check()
        if self.label_length > self.steps:
            raise ValueError(
                f"label_length {self.label_length}: more than the context of {self.steps} steps"
            )

    @override
    def fields(self, given: Mapping[str, str]) -> dict[str, Any]:
        if "num_parallel_samples" in given:
            raise ValueError(
                f"num_parallel_samples: the distributions of {self.title} are served themselves"
            )
        return super().fields(given) | {
            "architecture": "huggingface-autoformer",
            "head": self.distribution_output.replace("_", "-"),
            "static_features": 0 if STATIC in given else self._width,
            "attention": {
                "mechanism": "autocorrelation",
                "factor": self.autocorrelation_factor,
                "longer_query": "cut",
            },
        }

    @property
    def _width(self) -> int:
        """Number of values that static features add to each token."""
        return sum(self.widths) + self.num_static_real_features

    @override
    def prepare(self, state: State, given: Mapping[str, str]) -> State:
        """Store the static features, which are the same for all windows, in the weights."""
        state = dict(state)
        static = self.embedded(state, given)
        if len(static):
            state[_STATIC] = static
        return state | {_VALUE.format(part, "bias"): torch.zeros(self.d_model) for part in _PARTS}


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _features(names: list[str]) -> list[str]:
    """Our features by our names or those of GluonTS."""
    known = get_args(Feature)
    found = [_GLUONTS.get(name, name) for name in names]
    for name in found:
        if name == "age":
            raise ValueError(
                "time_features age: requests do not have the age of a series; name it with "
                f"{_flag(FUTURE)}, and send it as the training computed it"
            )
        if name not in known:
            raise ValueError(f"time_features {name}: expected some of {', '.join(known)}")
    return found
