"""Shared parts of Autoformer and Transformer: a decoder that reads the end of the history."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.models.attending import AttendingConfig
from foretell.models.attention.mechanism import Site
from foretell.models.config import calendar_of
from foretell.models.layers.embedding import TABLE_ROWS, CalendarKind, SeriesEmbedding
from foretell.timeaxis.calendar import Calendar, Encoding
from foretell.timeaxis.frequency import Frequency


def _half(known: dict[str, int]) -> int:
    return known.get("context", 0) // 2


class EncoderDecoderConfig(AttendingConfig):
    """A forecaster whose decoder reads the last `label` steps again and then the horizon."""

    has_heads: ClassVar[bool] = True
    reads_covariates: ClassVar[bool] = True
    label: int = Field(
        default_factory=_half,
        ge=0,
        description="Steps of history the decoder starts with; half the context if not given.",
    )
    decoder_layers: int = Field(default=1, ge=1, description="Decoder layers.")
    embedding: CalendarKind = Field(default="timeF", description="Embedding of calendar features.")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.label > self.context:
            raise ValueError(f"label: {self.label} steps are more than the context {self.context}")
        wanted = _encoding(self.embedding)
        features = self.calendar.features if self.calendar else ()
        if self.calendar is not None and self.calendar.encoding != wanted:
            raise ValueError(f"calendar: embedding {self.embedding} reads {wanted} features")
        if wanted == "integer" and (unknown := set(features) - TABLE_ROWS.keys()):
            raise ValueError(
                f"calendar: embedding {self.embedding} has no table of {min(unknown)}; "
                f"there are {', '.join(TABLE_ROWS)}"
            )
        return self

    @property
    def causal_decoder(self) -> bool:
        """Whether a step of the decoder must not attend to later ones."""
        return False

    @property
    def decoder_length(self) -> int:
        """Steps of the decoder."""
        return self.label + self.horizon

    @classmethod
    @override
    def calendar_for(cls, frequency: Frequency, settings: dict[str, object]) -> Calendar | None:
        embedding = settings.get("embedding", cls.model_fields["embedding"].default)
        return calendar_of(frequency, _encoding(embedding))

    def decoder_calendar(
        self, history_calendar: Tensor | None, future_calendar: Tensor | None
    ) -> Tensor | None:
        """Time features of the decoder's steps, `[batch, label + horizon, features]`."""
        if history_calendar is None or future_calendar is None:
            return None
        start = self.context - self.label
        return torch.cat([history_calendar[:, start:], future_calendar], dim=1)

    def by_parameter(self, outputs: Tensor) -> Tensor:
        """Reorder outputs so that all steps of a parameter are together.

        Args:
            outputs: `[batch, horizon, parameters * channels]`.

        Returns:
            `[batch, parameters * horizon, channels]`.
        """
        if self.head is None:
            return outputs
        parts = outputs.reshape(-1, self.horizon, self.parameters, self.channels)
        return parts.transpose(1, 2).flatten(1, 2)

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        """Places in the encoder, then in the decoder; all attend between steps."""
        history = Axis(length=self.context, start=-self.context)
        decoder = Axis(length=self.decoder_length, start=-self.label)
        own = Site(self.d_model, self.heads, history, history, dropout=self.dropout)
        cross = own._replace(query=decoder, chained=False)
        itself = cross._replace(key=decoder, causal=self.causal_decoder)
        found = {f"encoder.{i}.self": (i, own) for i in range(self.encoder_layers)}
        for i in range(self.decoder_layers):
            layer = self.encoder_layers + i
            found[f"decoder.{i}.self"] = layer, itself
            found[f"decoder.{i}.cross"] = layer, cross
        return found

    def build_embedding(self, length: int, *, positions: bool) -> SeriesEmbedding:
        """An untrained embedding of `length` steps."""
        return SeriesEmbedding(
            self.channels,
            self.d_model,
            length,
            calendar=self.calendar,
            kind=self.embedding,
            positions=positions,
            dropout=self.dropout,
            covariates=self.covariate_features,
        )


def _encoding(embedding: object) -> Encoding:
    return "scaled" if embedding == "timeF" else "integer"
