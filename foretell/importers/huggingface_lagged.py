"""What files of Hugging Face's models say whose tokens are values at lags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from foretell.data.reading import split_names
from foretell.importers.arguments import Arguments
from foretell.importers.errors import ImporterError
from foretell.importers.huggingface_config import SavedConfig, State
from foretell.importers.layouts import Layout, rows
from foretell.models.layers.feed_forward import Activation
from foretell.timeaxis.calendar import Feature

Length = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
# What GluonTS calls features of ours, which the library's examples take.
_GLUONTS = {
    "second_of_minute": "second",
    "minute_of_hour": "minute",
    "hour_of_day": "hour",
    "week_of_year": "week",
    "month_of_year": "month",
}
_EMBEDDER = "model.embedder.embedders.{}.weight"
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


class Part(NamedTuple):
    """Encoder or decoder.

    Attributes:
        number: What numbers its layers.
        attentions: Of a layer, by what they are called there.
    """

    number: str
    attentions: Mapping[str, str]


PARTS = {
    "encoder": Part("{e_layers}", {"self_attn": "attention"}),
    "decoder": Part(
        "{d_layers}", {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
    ),
}


class LaggedModel(SavedConfig):
    """Of such a model, with an encoder and a decoder."""

    hidden: ClassVar[frozenset[str]] = SavedConfig.hidden | {
        *("loss", "num_dynamic_real_features"),
    }

    # Of a layer, besides attention and feed-forward network, and of the model itself.
    encoder_keys: ClassVar[str]
    decoder_keys: ClassVar[str]
    further_keys: ClassVar[str] = ""

    input_size: Length = 1
    context_length: Length | None = None
    prediction_length: Length
    lags_sequence: list[Length] = Field(default=[1, 2, 3, 4, 5, 6, 7], min_length=1)
    loss: Literal["nll"] = "nll"
    num_time_features: Count = 0
    num_dynamic_real_features: Literal[0] = 0
    num_static_categorical_features: Count = 0
    num_static_real_features: Count = 0
    d_model: Length = 64
    encoder_layers: Length = 2
    encoder_attention_heads: Length = 2
    encoder_ffn_dim: Length = 32
    decoder_layers: Length = 2
    decoder_attention_heads: Length = 2
    decoder_ffn_dim: Length = 32
    activation_function: Activation = "gelu"

    @property
    def steps(self) -> int:
        """Steps that the encoder works on."""
        return self.context_length or self.prediction_length

    @override
    def fields(self, given: Arguments) -> dict[str, Any]:
        known = f"of {', '.join(get_args(Feature))}, in the order in which they were given"
        names = self._told(given, "time_features", "num_time_features", known)
        self.static(given)
        return {
            "channels": self.input_size,
            "context": self.steps + max(self.lags_sequence),
            "horizon": self.prediction_length,
            "calendar": {"encoding": "scaled", "features": _features(names)} if names else None,
            "value_lags": self.lags_sequence,
            "scaling": self.window_norm,
            "d_model": self.d_model,
            "heads": self.encoder_attention_heads,
            "d_ff": self.encoder_ffn_dim,
            "encoder_layers": self.encoder_layers,
            "decoder_heads": self.decoder_attention_heads,
            "decoder_d_ff": self.decoder_ffn_dim,
            "decoder_layers": self.decoder_layers,
            "activation": self.activation_function,
        }

    def _told(self, given: Arguments, option: str, field: str, kind: str) -> list[str]:
        """The words of an option, as many as a field says."""
        words = split_names(given[option].value) if option in given else []
        if len(words) != (count := getattr(self, field)):
            raise ValueError(
                f"{field} {count}: --{option} has to have as many {kind}, got {len(words)}"
            )
        return words

    def static(self, given: Arguments) -> tuple[list[int], list[float]]:
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
        embedding = """
            value_embedding.value_projection.*  value.*
            embed_positions.weight              positions
            layernorm_embedding.*               norm.*
        """
        found = rows(self.further_keys)
        found += rows("parameter_projection.proj.{parameters}.*  heads.{parameters}.*")
        for part, layer in PARTS.items():
            theirs, ours = f"model.{part}.", f"{part}_layers.{layer.number}."
            found += rows(embedding, theirs, f"{part}_embedding.")
            theirs += f"layers.{layer.number}."
            for attention, name in layer.attentions.items():
                found += rows(_ATTENTION, f"{theirs}{attention}.", f"{ours}{name}.")
            keys = self.encoder_keys if part == "encoder" else self.decoder_keys
            found += rows(keys + _FEED_FORWARD, theirs, ours)
        return Layout(f"{self.title} of transformers", {}, found)

    def embedded(self, state: State, given: Arguments) -> Tensor:
        """The numbers that static features are in each token; takes their tables away."""
        categories, reals = self.static(given)
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
