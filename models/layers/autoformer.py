"""Layers that take trends out of series of tokens (Wu et al., 2021, arXiv:2106.13008)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from foretell.models.attention.evidence import Evidence
from foretell.models.attention.mechanism import Attended
from foretell.models.layers.decomposition import SeriesDecomposition
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import TokenEmbedding
from foretell.models.layers.feed_forward import Activation, FeedForward
from foretell.models.layers.normalization import SeasonalLayerNorm


class LayerSizes(NamedTuple):
    """Sizes and settings of the layers of an encoder or decoder.

    Attributes:
        d_model: Features of a token.
        d_ff: Width of the feed-forward network.
        moving_average: Steps of the trend's moving average, odd.
        activation: Activation of the feed-forward network.
        dropout: Probability, after each part.
        normed: Whether there are norms after each attention and at the end, and biases in the
            feed-forward network, as in transformers; the published form lacks them.
    """

    d_model: int
    d_ff: int
    moving_average: int
    activation: Activation
    dropout: float
    normed: bool = False

    def feed_forward(self) -> FeedForward:
        """An untrained feed-forward network."""
        return FeedForward(
            self.d_model,
            self.d_ff,
            activation=self.activation,
            dropout=self.dropout,
            bias=self.normed,
        )

    def norm(self) -> nn.Module:
        """The norm after an attention."""
        return nn.LayerNorm(self.d_model) if self.normed else nn.Identity()

    def last_norm(self) -> nn.Module:
        """The norm at the end of a layer."""
        return SeasonalLayerNorm(self.d_model) if self.normed else nn.Identity()


class AutoformerEncoderLayer(nn.Module):
    """Attention and feed-forward network; after each, only the seasonal part goes on.

    Args:
        attention: Module of a mechanism.
        sizes: Sizes of the layer.
    """

    def __init__(self, attention: nn.Module, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = sizes.norm()
        self.attention_decomposition = SeriesDecomposition(sizes.moving_average)
        self.feed_forward = sizes.feed_forward()
        self.feed_forward_decomposition = SeriesDecomposition(sizes.moving_average)
        self.last_norm = sizes.last_norm()
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self, tokens: Tensor, *, inherited: Tensor | None = None, explain: bool = False
    ) -> Attended:
        """Run the layer on `[batch, time, d_model]`, and return evidence if requested."""
        attended: Attended = self.attention(tokens, tokens, inherited=inherited, explain=explain)
        tokens = self.attention_norm(tokens + self.dropout(attended.output))
        tokens, _ = self.attention_decomposition(tokens)
        tokens, _ = self.feed_forward_decomposition(tokens + self.feed_forward(tokens))
        return attended._replace(output=self.last_norm(tokens))


class AutoformerDecoded(NamedTuple):
    """Tokens `[batch, time, d_model]`, trend `[batch, time, outputs]`, evidence."""

    seasonal: Tensor
    trend: Tensor
    own: Evidence | None
    cross: Evidence | None


class AutoformerDecoderLayer(nn.Module):
    """The encoder layer with cross-attention, which returns the trends that it takes out.

    Args:
        self_attention: Module of a mechanism.
        cross_attention: Module of a mechanism.
        sizes: Sizes of the layer.
        outputs: Features of the trend.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        sizes: LayerSizes,
        outputs: int,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_decomposition = SeriesDecomposition(sizes.moving_average)
        self.self_norm = sizes.norm()
        self.cross_attention = cross_attention
        self.cross_decomposition = SeriesDecomposition(sizes.moving_average)
        self.cross_norm = sizes.norm()
        self.feed_forward = sizes.feed_forward()
        self.feed_forward_decomposition = SeriesDecomposition(sizes.moving_average)
        self.last_norm = sizes.last_norm()
        self.trend_projection = TokenEmbedding(sizes.d_model, outputs)
        # As published: only embeddings start differently from torch's convolutions.
        self.trend_projection.convolution.reset_parameters()
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self, tokens: Tensor, memory: Tensor, *, explain: bool = False
    ) -> AutoformerDecoded:
        """Let `[batch, time, d_model]` read itself and `memory` `[batch, context, d_model]`."""
        own: Attended = self.self_attention(tokens, tokens, explain=explain)
        tokens, self_trend = self.self_decomposition(tokens + self.dropout(own.output))
        tokens = self.self_norm(tokens)
        cross: Attended = self.cross_attention(tokens, memory, explain=explain)
        tokens, cross_trend = self.cross_decomposition(tokens + self.dropout(cross.output))
        tokens = self.cross_norm(tokens)
        tokens, late_trend = self.feed_forward_decomposition(tokens + self.feed_forward(tokens))
        trend = self.trend_projection(self_trend + cross_trend + late_trend)
        return AutoformerDecoded(self.last_norm(tokens), trend, own.evidence, cross.evidence)
