"""`TimeSeriesTransformerForPrediction` of Hugging Face's transformers."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from typing_extensions import override

from foretell.importers.arguments import Arguments
from foretell.importers.huggingface_config import State
from foretell.importers.huggingface_lagged import PARTS, LaggedModel

_MOST_PATHS = 1000
_VALUE = "model.{}.value_embedding.value_projection.{}"


class TimeSeriesTransformer(LaggedModel):
    """Of a model whose forecasts are drawn step by step."""

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
    def fields(self, given: Arguments) -> dict[str, Any]:
        return super().fields(given) | {
            "architecture": "huggingface-time-series-transformer",
            "samples": self._samples(given),
            "step_distribution": self.distribution_output.replace("_", "-"),
        }

    def _samples(self, given: Arguments) -> int:
        """Paths to draw, of the option or else of the file; none for the path of the means."""
        if "num_parallel_samples" not in given:
            return self.num_parallel_samples
        text = given["num_parallel_samples"].value
        if not text.isdecimal() or int(text) == 1 or int(text) > _MOST_PATHS:
            raise ValueError(f"--num_parallel_samples {text}: expected 0, or 2 to {_MOST_PATHS}")
        return int(text)

    @override
    def prepare(self, state: State, given: Arguments) -> State:
        """With what static features come to, the same for all windows, as a bias."""
        state = dict(state)
        static = self.embedded(state, given)
        ends = [0, self.input_size * len(self.lags_sequence)]
        ends += [ends[1] + len(static)]
        ends += [ends[2] + 2 * self.input_size + self.num_time_features]
        for part in PARTS:
            weight = state.get(_VALUE.format(part, "weight"))
            bias = torch.zeros(self.d_model)
            if weight is not None and weight.shape == (self.d_model, ends[-1]):
                lagged, fixed, others = (weight[:, start:end] for start, end in pairwise(ends))
                state[_VALUE.format(part, "weight")] = torch.cat([lagged, others], dim=1)
                bias = (fixed.double() @ static.double()).float()
            state[_VALUE.format(part, "bias")] = bias
        return state
