"""Transformer: encoder and decoder, the whole horizon in one pass.

Vaswani et al., 2017 (arXiv:1706.03762), with Informer's one-pass decoding and embeddings (Zhou et
al., 2021, arXiv:2012.07436), as the Time-Series-Library has it.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.models.forecaster import ARCHITECTURES, Explained, Forecaster, Inputs
from foretell.models.layers.transformer import Decoded, DecoderLayer, EncoderLayer, encode


@ARCHITECTURES.add
class TransformerConfig(EncoderDecoderConfig):
    """Configuration of a Transformer."""

    architecture: Literal["transformer"] = "transformer"

    @override
    def build(self) -> Forecaster:
        return Transformer(self)


class Transformer(Forecaster):
    """Every step of context and horizon is a token."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config: TransformerConfig = config
        self.stages = config.describe_stages()
        self.encoder_embedding = config.build_embedding(config.context, positions=True)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(
                config.build_attention(f"encoder.{i}.self"),
                config.d_model,
                config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
            )
            for i in range(config.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.d_model)
        self.decoder_embedding = config.build_embedding(config.decoder_length, positions=True)
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(
                config.build_attention(f"decoder.{i}.self"),
                config.build_attention(f"decoder.{i}.cross"),
                config.d_model,
                config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
            )
            for i in range(config.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(config.d_model)
        self.projection = nn.Linear(config.d_model, config.channels)

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history, history_calendar, future_calendar = inputs
        tokens = self.encoder_embedding(history, history_calendar)
        tokens, layers = encode(self.encoder_layers, tokens, explain=explain)
        seen = {f"encoder.{i}.self": one for i, one in enumerate(layers)}
        memory = self.encoder_norm(tokens)

        # The horizon is unknown: the decoder sees zeros there.
        known = history[:, self.config.context - self.config.label :]
        series = functional.pad(known, (0, 0, 0, self.config.horizon))
        calendar = self.config.decoder_calendar(history_calendar, future_calendar)
        tokens = self.decoder_embedding(series, calendar)
        for i, layer in enumerate(self.decoder_layers):
            decoded: Decoded = layer(tokens, memory, explain=explain)
            tokens = decoded.output
            seen[f"decoder.{i}.self"], seen[f"decoder.{i}.cross"] = decoded.own, decoded.cross
        forecast: Tensor = self.projection(self.decoder_norm(tokens))
        return Explained.of(forecast[:, -self.config.horizon :], seen)
