"""The models that are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from foretell.bundle.manifest import Scaler
from foretell.export.serving_form import ServingForm
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.forecaster import Forecaster, ForecasterConfig
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

_CHANNELS = 7
_SERIES: dict[str, Any] = {
    "channels": _CHANNELS,
    "context": 96,
    "horizon": 96,
    "label": 48,
    "calendar": Calendar.for_frequency(Frequency.parse("h"), "scaled"),
}
_SMALL: dict[str, Any] = {"d_model": 64, "heads": 8, "d_ff": 256, "encoder_layers": 2}
_LARGE: dict[str, Any] = {"d_model": 512, "heads": 8, "d_ff": 2048, "encoder_layers": 2}
_PATCHES: dict[str, Any] = {
    "channels": _CHANNELS,
    "context": 336,
    "horizon": 96,
    "encoder_layers": 3,
}

SCALER = Scaler.identity(_CHANNELS)


@dataclass(frozen=True)
class Size:
    """A model to measure, with random weights: they have no influence on the time.

    Attributes:
        name: What the report calls it.
        config: Of the model.
    """

    name: str
    config: ForecasterConfig

    def model(self) -> Forecaster:
        """The plain module in evaluation."""
        torch.manual_seed(0)
        return self.config.build().eval()

    def inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Random inputs of the serving form."""
        generator = torch.Generator().manual_seed(batch)
        example = ServingForm(self.model(), SCALER, "forecast").example_inputs(batch)
        made = [torch.randn(part.shape, generator=generator) for part in example]
        if self.config.calendar is not None and self.config.calendar.encoding == "integer":
            # Of every feature there are so many.
            made[1:] = [part.abs().clamp(max=3).floor() for part in made[1:]]
        return tuple(made)


SIZES = (
    Size("PatchTST 336→96, d 16", PatchTSTConfig(**_PATCHES, d_model=16, heads=4, d_ff=128)),
    Size("PatchTST 336→96, d 128", PatchTSTConfig(**_PATCHES, d_model=128, heads=16, d_ff=256)),
    Size("Transformer 96→96, d 64", TransformerConfig(**_SERIES, **_SMALL)),
    Size("Transformer 96→96, d 512", TransformerConfig(**_SERIES, **_LARGE)),
    Size("Autoformer 96→96, d 64", AutoformerConfig(**_SERIES, **_SMALL)),
    Size("Autoformer 96→96, d 512", AutoformerConfig(**_SERIES, **_LARGE)),
    Size(
        "Autoformer 720→96, d 64",
        AutoformerConfig(**_SERIES | {"context": 720}, **_SMALL),
    ),
)
# For a run that only shows that the benchmark works.
QUICK = (SIZES[0], SIZES[4])
