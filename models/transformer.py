"""Transformer: encoder and decoder, the whole horizon in one pass.

Vaswani et al., 2017 (arXiv:1706.03762), with Informer's one-pass decoding and embeddings (Zhou et
al., 2021, arXiv:2012.07436), as the Time-Series-Library has it.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.manifest import AttentionStage
from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.models.forecaster import Attention, Explained, Forecaster, SoftmaxAttention
from foretell.models.layers.embedding import SeriesEmbedding
from foretell.models.layers.transformer_layers import DecoderLayer, EncoderLayer


class TransformerConfig(EncoderDecoderConfig):
    """Configuration of a Transformer."""

    architecture: Literal["transformer"] = "transformer"


class Transformer(Forecaster):
    """Every step of context and horizon is a token."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config: TransformerConfig = config
        self.encoder_embedding = _embedding(config, config.context)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(
                config.d_model,
                config.heads,
                config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.dropout,
            )
            for _ in range(config.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.d_model)
        self.decoder_embedding = _embedding(config, config.decoder_length)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(
                config.d_model,
                config.heads,
                config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
            )
            for _ in range(config.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(config.d_model)
        self.projection = nn.Linear(config.d_model, config.channels)

    @property
    @override
    def stages(self) -> tuple[AttentionStage, ...]:
        return self.config.describe_stages("softmax")

    @override
    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Tensor:
        return self._run(history, history_calendar, future_calendar, None)

    @override
    def explain(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Explained:
        attention: dict[str, Attention] = {}
        forecast = self._run(history, history_calendar, future_calendar, attention)
        return Explained(forecast, attention)

    def _run(
        self,
        history: Tensor,
        history_calendar: Tensor | None,
        future_calendar: Tensor | None,
        attention: dict[str, Attention] | None,
    ) -> Tensor:
        """Forecast; fill `attention`, if given, with the map of each stage."""
        explain = attention is not None
        maps: dict[str, Tensor | None] = {}
        memory = self.encoder_embedding(history, history_calendar)
        for i, layer in enumerate(self.encoder_layers):
            memory, maps[f"encoder.{i}.self"], _ = layer(memory, return_weights=explain)
        memory = self.encoder_norm(memory)

        # The horizon is unknown: the decoder sees zeros there.
        known = history[:, self.config.context - self.config.label :]
        series = functional.pad(known, (0, 0, 0, self.config.horizon))
        calendar = self.config.decoder_calendar(history_calendar, future_calendar)
        tokens = self.decoder_embedding(series, calendar)
        for i, layer in enumerate(self.decoder_layers):
            tokens, maps[f"decoder.{i}.self"], maps[f"decoder.{i}.cross"] = layer(
                tokens, memory, return_weights=explain
            )
        forecast: Tensor = self.projection(self.decoder_norm(tokens))
        if attention is not None:
            attention.update(
                (name, SoftmaxAttention(weights))
                for name, weights in maps.items()
                if weights is not None
            )
        return forecast[:, -self.config.horizon :]


def _embedding(config: TransformerConfig, length: int) -> SeriesEmbedding:
    return SeriesEmbedding(
        config.channels,
        config.d_model,
        length,
        calendar=config.calendar,
        kind=config.embedding,
        positions=True,
        dropout=config.dropout,
    )
