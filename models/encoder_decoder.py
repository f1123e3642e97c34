"""What Autoformer and Transformer share: a decoder that knows the end of the history."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from foretell.bundle.manifest import AttentionStage, Axis
from foretell.models.forecaster import ForecasterConfig
from foretell.models.layers.embedding import CalendarKind


class EncoderDecoderConfig(ForecasterConfig):
    """A forecaster whose decoder reads the last `label` steps again and then the horizon.

    Attributes:
        label: Steps of history the decoder starts with.
        decoder_layers: Number of decoder layers.
        embedding: How calendar features are embedded; `timeF` reads scaled ones.
    """

    label: int = Field(ge=0)
    decoder_layers: int = Field(default=1, ge=1)
    embedding: CalendarKind = "timeF"

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not divide d_model {self.d_model}")
        if self.label > self.context:
            raise ValueError(f"label: {self.label} steps are more than the context {self.context}")
        wanted = "scaled" if self.embedding == "timeF" else "integer"
        if self.calendar is not None and self.calendar.encoding != wanted:
            raise ValueError(f"calendar: embedding {self.embedding} reads {wanted} features")
        return self

    @property
    def decoder_length(self) -> int:
        """Steps the decoder works on."""
        return self.label + self.horizon

    def decoder_calendar(
        self, history_calendar: Tensor | None, future_calendar: Tensor | None
    ) -> Tensor | None:
        """Calendar features of the decoder's steps, `[batch, label + horizon, features]`."""
        if self.calendar is None or history_calendar is None or future_calendar is None:
            return None
        start = self.context - self.label
        return torch.cat([history_calendar[:, start:], future_calendar], dim=1)

    def describe_stages(self, kind: str) -> tuple[AttentionStage, ...]:
        """The encoder's, then the decoder's stages; all attend between steps."""
        history = Axis(length=self.context, start=-self.context)
        decoder = Axis(length=self.decoder_length, start=-self.label)
        source = history
        if kind == "autocorrelation":
            # Keys are cut or zero-padded to the length of the query.
            missing = max(self.decoder_length - self.context, 0)
            source = Axis(length=self.decoder_length, start=-self.context, padding=missing)

        def stage(name: str, query: Axis, key: Axis) -> AttentionStage:
            return AttentionStage.model_validate(
                {"name": name, "kind": kind, "heads": self.heads, "query": query, "key": key}
            )

        stages = [stage(f"encoder.{i}.self", history, history) for i in range(self.encoder_layers)]
        for i in range(self.decoder_layers):
            stages.append(stage(f"decoder.{i}.self", decoder, decoder))
            stages.append(stage(f"decoder.{i}.cross", decoder, source))
        return tuple(stages)
