"""`TimeSeriesTransformerForPrediction` of Hugging Face's transformers."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from foretell.bundle.calendar import Feature
from foretell.models.data.reading import split_names
from foretell.models.importers.arguments import Arguments
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.huggingface_config import SavedConfig, State
from foretell.models.importers.layouts import Layout, rows
from foretell.models.layers.feed_forward import Activation

_LENGTH = Annotated[int, Field(ge=1)]
_COUNT = Annotated[int, Field(ge=0)]
_MOST_PATHS = 1000
# What GluonTS calls features of ours, which the library's examples take.
_GLUONTS = {
    "second_of_minute": "second",
    "minute_of_hour": "minute",
    "hour_of_day": "hour",
    "week_of_year": "week",
    "month_of_year": "month",
}
_VALUE = "model.{}.value_embedding.value_projection.{}"
_EMBEDDER = "model.embedder.embedders.{}.weight"


class TimeSeriesTransformer(SavedConfig):
    """Of a model whose forecasts are drawn step by step."""

    title: ClassVar[str] = "TimeSeriesTransformerForPrediction"
    model_type: ClassVar[str] = "time_series_transformer"
    hidden: ClassVar[frozenset[str]] = SavedConfig.hidden | {
        *("loss", "num_dynamic_real_features"),
    }

    input_size: _LENGTH = 1
    context_length: _LENGTH | None = None
    prediction_length: _LENGTH
    lags_sequence: list[_LENGTH] = Field(default=[1, 2, 3, 4, 5, 6, 7], min_length=1)
    distribution_output: Literal["student_t", "normal"] = "student_t"
    loss: Literal["nll"] = "nll"
    scaling: str | bool | None = "mean"
    num_time_features: _COUNT = 0
    num_dynamic_real_features: Literal[0] = 0
    num_static_categorical_features: _COUNT = 0
    num_static_real_features: _COUNT = 0
    d_model: _LENGTH = 64
    encoder_layers: _LENGTH = 2
    encoder_attention_heads: _LENGTH = 2
    encoder_ffn_dim: _LENGTH = 32
    decoder_layers: _LENGTH = 2
    decoder_attention_heads: _LENGTH = 2
    decoder_ffn_dim: _LENGTH = 32
    activation_function: Activation = "gelu"
    num_parallel_samples: Annotated[int, Field(ge=0, le=_MOST_PATHS)] = 100

    @property
    def steps(self) -> int:
        """Steps that the encoder works on."""
        return self.context_length or self.prediction_length

    @override
    def fields(self, given: Arguments) -> dict[str, Any]:
        known = f"of {', '.join(get_args(Feature))}, in the order in which they were given"
        names = self._told(given, "time_features", "num_time_features", known)
        self._static(given)
        return {
            "architecture": "huggingface-time-series-transformer",
            "channels": self.input_size,
            "context": self.steps + max(self.lags_sequence),
            "horizon": self.prediction_length,
            "calendar": {"encoding": "scaled", "features": _features(names)} if names else None,
            "value_lags": self.lags_sequence,
            "scaling": self.window_norm,
            "samples": self._samples(given),
            "step_distribution": self.distribution_output.replace("_", "-"),
            "d_model": self.d_model,
            "heads": self.encoder_attention_heads,
            "d_ff": self.encoder_ffn_dim,
            "encoder_layers": self.encoder_layers,
            "decoder_heads": self.decoder_attention_heads,
            "decoder_d_ff": self.decoder_ffn_dim,
            "decoder_layers": self.decoder_layers,
            "activation": self.activation_function,
        }

    def _samples(self, given: Arguments) -> int:
        """Paths to draw, of the option or else of the file; none for the path of the means."""
        if "num_parallel_samples" not in given:
            return self.num_parallel_samples
        text = given["num_parallel_samples"].value
        if not text.isdecimal() or int(text) == 1 or int(text) > _MOST_PATHS:
            raise ValueError(f"--num_parallel_samples {text}: expected 0, or 2 to {_MOST_PATHS}")
        return int(text)

    def _told(self, given: Arguments, option: str, field: str, kind: str) -> list[str]:
        """The words of an option, as many as a field says."""
        words = split_names(given[option].value) if option in given else []
        if len(words) != (count := getattr(self, field)):
            raise ValueError(
                f"{field} {count}: --{option} has to have as many {kind}, got {len(words)}"
            )
        return words

    def _static(self, given: Arguments) -> tuple[list[int], list[float]]:
        """Categories and numbers that are the same for all series."""
        kind = "whole numbers, which all series have then"
        field = "num_static_categorical_features"
        categories = self._told(given, "static_categorical", field, kind)
        kind, field = "numbers, which all series have then", "num_static_real_features"
        reals = self._told(given, "static_real", field, kind)
        try:
            return [int(word) for word in categories], [float(word) for word in reals]
        except ValueError as error:
            raise ValueError(f"--static_categorical or --static_real: {error}") from None

    @override
    def layout(self) -> Layout:
        attention = (("q", "query"), ("k", "key"), ("v", "value"), ("out", "out"))
        own = [f"self_attn.{theirs}_proj.*  attention.{ours}.*" for theirs, ours in attention]
        decoder = [
            f"{theirs}.{each}_proj.*  {ours}.{name}.*"
            for theirs, ours in (
                ("self_attn", "self_attention"),
                ("encoder_attn", "cross_attention"),
            )
            for each, name in attention
        ]
        feed_forward = [
            "fc1.*  feed_forward.expand.*",
            "fc2.*  feed_forward.contract.*",
            "final_layer_norm.*  feed_forward_norm.*",
        ]
        encoder = [*own, "self_attn_layer_norm.*  attention_norm.*", *feed_forward]
        decoder += [
            "self_attn_layer_norm.*     self_norm.*",
            "encoder_attn_layer_norm.*  cross_norm.*",
            *feed_forward,
        ]
        return Layout(
            f"{self.title} of transformers",
            {},
            tuple(
                row
                for part, number, table in (
                    ("encoder", "{e_layers}", encoder),
                    ("decoder", "{d_layers}", decoder),
                )
                for row in (
                    *rows(
                        """
                        value_embedding.value_projection.*  value.*
                        embed_positions.weight              positions
                        layernorm_embedding.*               norm.*
                        """,
                        f"model.{part}.",
                        f"{part}_embedding.",
                    ),
                    *rows(
                        "\n".join(table),
                        f"model.{part}.layers.{number}.",
                        f"{part}_layers.{number}.",
                    ),
                )
            )
            + rows("parameter_projection.proj.{parameters}.*  heads.{parameters}.*"),
        )

    @override
    def prepare(self, state: State, given: Arguments) -> State:
        """With what static features come to, the same for all windows, as a bias."""
        state = dict(state)
        static = self._embedded(state, given)
        ends = [0, self.input_size * len(self.lags_sequence)]
        ends += [ends[1] + len(static)]
        ends += [ends[2] + 2 * self.input_size + self.num_time_features]
        for part in ("encoder", "decoder"):
            weight = state.get(_VALUE.format(part, "weight"))
            bias = torch.zeros(self.d_model)
            if weight is not None and weight.shape == (self.d_model, ends[-1]):
                lagged, fixed, others = (weight[:, start:end] for start, end in pairwise(ends))
                state[_VALUE.format(part, "weight")] = torch.cat([lagged, others], dim=1)
                bias = (fixed.double() @ static.double()).float()
            state[_VALUE.format(part, "bias")] = bias
        return state

    def _embedded(self, state: State, given: Arguments) -> Tensor:
        """The numbers that static features are in each token; takes their tables away."""
        categories, reals = self._static(given)
        found = []
        for place, category in enumerate(categories):
            table = state.pop(key := _EMBEDDER.format(place), None)
            if table is None or table.ndim != 2:
                raise ImporterError(f"{key}: no table of static features")
            if not 0 <= category < len(table):
                raise ImporterError(
                    f"--static_categorical {category}: {key} has rows 0 to {len(table) - 1}"
                )
            found.append(table[category])
        return torch.cat([*found, torch.tensor(reals)])


def _features(names: list[str]) -> list[str]:
    """Ours by name, or by that of GluonTS."""
    found = [_GLUONTS.get(name, name) for name in names]
    for name in found:
        if name == "age":
            raise ValueError(
                "--time_features age: how old a series is, no request tells; train without it"
            )
        if name not in get_args(Feature):
            raise ValueError(
                f"--time_features {name}: expected some of {', '.join(get_args(Feature))}"
            )
    return found
