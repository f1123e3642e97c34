"""`AutoformerForPrediction` of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from typing_extensions import override

from foretell.importers.arguments import Arguments
from foretell.importers.huggingface_config import State
from foretell.importers.huggingface_lagged import PARTS, Count, LaggedModel, Length

_BIAS = "model.{}.value_embedding.value_projection.bias"
# Of several tables, and of numbers that are in none.
_STATIC = "model.embedder.embedders"


class Autoformer(LaggedModel):
    """Of a model that forecasts distributions of all steps at once."""

    title: ClassVar[str] = "AutoformerForPrediction"
    model_type: ClassVar[str] = "autoformer"
    hidden: ClassVar[frozenset[str]] = LaggedModel.hidden | {"cardinality", "embedding_dimension"}

    distribution_output: Literal["student_t", "normal", "negative_binomial"] = "student_t"
    scaling: str | bool | None = True
    label_length: Length = 10
    moving_average: Length = 25
    autocorrelation_factor: Length = 3
    cardinality: list[Count] | None = None
    embedding_dimension: list[Count] | None = None

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
    def fields(self, given: Arguments) -> dict[str, Any]:
        if "num_parallel_samples" in given:
            raise ValueError(
                f"--num_parallel_samples: the distributions of {self.title} are served themselves"
            )
        return super().fields(given) | {
            "architecture": "huggingface-autoformer",
            "head": self.distribution_output.replace("_", "-"),
            "label": self.label_length,
            "moving_average": self.moving_average,
            "static_features": self._width(),
            "attention": {
                "mechanism": "autocorrelation",
                "factor": self.autocorrelation_factor,
                "longer_query": "cut",
            },
        }

    def _width(self) -> int:
        """Numbers that static features are in each token."""
        widths = self.embedding_dimension or [
            min(50, (count + 1) // 2) for count in self.cardinality or ()
        ]
        embedded = sum(widths) if self.num_static_categorical_features else 0
        return embedded + self.num_static_real_features

    @override
    def prepare(self, state: State, given: Arguments) -> State:
        """With static features as what all windows have in common."""
        state = dict(state)
        static = self.embedded(state, given)
        if len(static):
            state[_STATIC] = static
        return state | {_BIAS.format(part): torch.zeros(self.d_model) for part in PARTS}
