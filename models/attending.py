"""Shared parts of architectures whose layers attend between tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator
from torch import nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.models.attention.mechanism import Mechanism, MechanismConfig, Site
from foretell.models.attention.notation import read_notation
from foretell.models.attention.softmax import Softmax
from foretell.models.config import ForecasterConfig
from foretell.models.layers.encoder import Encoder
from foretell.models.layers.feed_forward import Activation
from foretell.models.layers.transformer import EncoderLayer

Mechanisms = Annotated[
    tuple[Mechanism, ...],
    Field(
        min_length=1,
        description="One mechanism for all, one per layer or stage (docs/guides/mechanisms.md).",
    ),
]


class AttendingConfig(ForecasterConfig):
    """A forecaster with layers of attention and a feed-forward network."""

    d_model: int = Field(default=32, ge=1, description="Features of a token.")
    heads: int = Field(default=4, ge=1, description="Attention heads; they divide d_model.")
    d_ff: int = Field(default=64, ge=1, description="Width of the feed-forward layers.")
    encoder_layers: int = Field(default=2, ge=1, description="Encoder layers.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Probability of dropout.")
    activation: Activation = Field(
        default="gelu", description="Activation of the feed-forward layers."
    )
    attention: Mechanisms = (Softmax(),)

    @field_validator("attention", mode="before")
    @classmethod
    def _one_for_all(cls, attention: object) -> object:
        given = attention if isinstance(attention, list | tuple) else (attention,)
        return [
            layer
            for one in given
            for layer in (read_notation(one) if isinstance(one, str) else (one,))
        ]

    @property
    @override
    def learning_rate(self) -> float:
        # 1e-4 with 512 features, as published, and more with fewer.
        return min(2e-3, 0.0512 / self.d_model)

    @property
    @override
    def token_width(self) -> int:
        # Read and projected by the attention, and inside of the feed-forward network.
        return 4 * self.d_model + self.d_ff

    @abstractmethod
    def sites(self) -> Mapping[str, tuple[int, Site]]:
        """Layer and place of each attention, by the name of its stage."""

    @model_validator(mode="after")
    def _check_attention(self) -> Self:
        stages, layers = len(self.sites()), self._layers()
        if len(self.attention) not in (1, layers, stages):
            each = f"{layers}, one a layer" + (f", or {stages}" if stages > layers else "")
            names = ", ".join(self.sites())
            raise ValueError(f"attention: expected one mechanism for all or {each}: {names}")
        for name, (mechanism, site) in self._placed().items():
            try:
                mechanism.check(site)
            except ValueError as error:
                raise ValueError(f"{error} (at {name})") from None
        return self

    def _layers(self) -> int:
        return 1 + max(layer for layer, _ in self.sites().values())

    def build_attention(self, stage: str) -> nn.Module:
        """The untrained attention of a stage."""
        mechanism, site = self._placed()[stage]
        return mechanism.build(site)

    def build_encoder_layers(self) -> Encoder:
        """Untrained encoder layers, one after the other, each with its own attention."""
        return Encoder(
            EncoderLayer(
                self.build_attention(f"encoder.{i}.self"),
                self.d_model,
                self.d_ff,
                activation=self.activation,
                dropout=self.dropout,
            )
            for i in range(self.encoder_layers)
        )

    def describe_stages(self) -> tuple[AttentionStage, ...]:
        """All attention stages, in the order in which they run."""
        return tuple(
            stage
            for name, (mechanism, site) in self._placed().items()
            for stage in mechanism.describe(name, site)
        )

    def _placed(self) -> dict[str, tuple[MechanismConfig, Site]]:
        """The mechanism of each stage, and its place."""
        count, layers = len(self.attention), self._layers()
        return {
            name: (self.attention[0 if count == 1 else layer if count == layers else i], site)
            for i, (name, (layer, site)) in enumerate(self.sites().items())
        }
