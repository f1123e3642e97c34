"""The served form of PatchTST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.batch_norm import AffineNorm
from foretell.export.rewrites.lookup import Call, all_of, rewrites
from foretell.export.rewrites.merged_attention import MergedAttention, is_narrow
from foretell.export.rewrites.transformer_layers import flatten_layer
from foretell.models.architectures.patchtst import PatchEncoder, PatchTST
from foretell.models.attention.evidence import Evidence, by_channel
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.scales import EPSILON, InstanceStatistics
from foretell.models.layers.transformer import EncoderLayer
from foretell.models.layers.window_norms import InstanceNorm


@rewrites(PatchTST)
def rewrite_patchtst(model: PatchTST, _: Call) -> nn.Module | None:
    """Leave the norm of the window to the encoder, whose form has time first already."""
    # For distributions the norm is undone on their parameters. A decoder of covariates reads the
    # normalised history.
    plain = model.head is None and model.covariate_decoder is None
    if type(model.window_norm) is InstanceNorm and plain:
        cast("PatchEncoder", model.branches[0]).window_norm = model.window_norm
        model.window_norm = None
    return None


@rewrites(PatchEncoder)
def rewrite_patch_encoder(plain: PatchEncoder, _: Call) -> nn.Module | None:
    """Use tokens in two dimensions."""
    if plain.config.joint_channels or type(plain.window_norm) not in (InstanceNorm, type(None)):
        return None
    if not all_of(plain.layers, "attention", MultiHeadAttention):
        return None
    return FlatPatchEncoder(plain)


class TimeFirstInstanceNorm(nn.Module):
    """Instance normalisation with the time axis first, so that it broadcasts long rows.

    Args:
        plain: The trained normalisation.
    """

    def __init__(self, plain: InstanceNorm) -> None:
        super().__init__()
        self.centre = plain.centre
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        """Normalise `[batch, time, channels]`.

        Returns:
            `[time, batch * channels]` and the statistics, `[1, batch * channels]`.
        """
        # Before the transposition: over the first axis onnxruntime adds one row after the other,
        # whose rounding shows in constant windows.
        mean = history.mean(dim=1, keepdim=True).reshape(1, -1)
        series = history.transpose(0, 1).flatten(1)
        centred = series - mean
        variance = (centred * centred).mean(dim=0, keepdim=True)
        statistics = InstanceStatistics(mean, torch.sqrt(variance + EPSILON))
        if self.centre == "last":
            statistics = statistics._replace(centre=series[-1:])
            centred = series - statistics.centre
        normed = centred / statistics.spread
        if self.weight is not None and self.bias is not None:
            by_channel = normed.reshape(len(normed), -1, len(self.weight))
            normed = (by_channel * self.weight + self.bias).flatten(1)
        return normed, statistics

    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        """Undo the normalisation on `[batch, channels, horizon]`."""
        if self.weight is not None and self.bias is not None:
            forecast = (forecast - self.bias[:, None]) / (self.weight[:, None] + EPSILON**2)
        channels = forecast.shape[1]
        spread, centre = (part.reshape(-1, channels, 1) for part in statistics[::-1])
        return forecast * spread + centre


class FoldedHead(nn.Module):
    """The final norm and the head as one linear map.

    Equal because a batch norm is one scale and shift in evaluation. Its weights are permuted to
    read patch by patch: the tokens need no transposition of features. Individual heads are one
    product with the channel as its batch axis.

    Args:
        plain: The trained encoder.
    """

    def __init__(self, plain: PatchEncoder) -> None:
        super().__init__()
        config = plain.config
        self.channels = config.channels
        self.individual = config.individual
        self.norm = None
        scale = torch.ones(config.d_model, dtype=torch.float64)
        shift = torch.zeros(config.d_model, dtype=torch.float64)
        if isinstance(plain.final_norm, TokenBatchNorm):
            affine = AffineNorm(plain.final_norm)
            scale, shift = affine.scale.double(), affine.shift.double()
        elif not isinstance(plain.final_norm, nn.Identity):
            self.norm = plain.final_norm
        dtype = plain.patch_projection.weight.dtype
        weights, biases = [], []
        for head in cast("Iterable[nn.Linear]", plain.heads):
            weight = head.weight.detach().double()
            weight = weight.reshape(-1, config.d_model, config.patches)
            biases.append(head.bias.detach().double() + (weight.sum(dim=2) * shift).sum(dim=1))
            # To [patches * d_model, horizon].
            weights.append((weight * scale[:, None]).permute(2, 1, 0).flatten(0, 1))
        # One head: [features, horizon]. One per channel: [channels, features, horizon].
        weight, bias = torch.stack(weights), torch.stack(biases)[:, None]
        if not config.individual:
            weight, bias = weight[0], bias[0, 0]
        self.weight, self.bias = nn.Buffer(weight.to(dtype)), nn.Buffer(bias.to(dtype))

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch * channels, patches, d_model]` to `[batch, channels, horizon]`."""
        if self.norm is not None:
            tokens = self.norm(tokens)
        series = tokens.flatten(1)
        if not self.individual:
            forecast = torch.addmm(self.bias, series, self.weight)
            return forecast.reshape(-1, self.channels, forecast.shape[1])
        by_channel = series.reshape(-1, self.channels, series.shape[1]).transpose(0, 1)
        return (by_channel @ self.weight + self.bias).transpose(0, 1)


class FlatPatchEncoder(nn.Module):
    """A patch encoder on tokens in two dimensions.

    Equal because patching only picks steps: one gather, with the padding in its indices. Batch and
    channels are one axis, and the patches' bias is part of the positions.

    Where the heads of attention are merged, the patches of a window lie together; elsewhere the
    axis of the patches is the first.

    Args:
        plain: The trained encoder; its layers are changed.
    """

    def __init__(self, plain: PatchEncoder) -> None:
        super().__init__()
        config = plain.config
        self.config = config
        self.merged = is_narrow(config.d_model, config.heads)
        norm = cast("InstanceNorm | None", plain.window_norm)
        self.window_norm = TimeFirstInstanceNorm(norm) if norm is not None else None
        starts = config.stride * torch.arange(config.patches)
        steps = starts[:, None] + torch.arange(config.patch)
        # Padding repeats the last step.
        self.steps = nn.Buffer(steps.clamp(max=config.context - 1).flatten())
        projection = plain.patch_projection
        self.projection = nn.Buffer(projection.weight.detach().T.contiguous())
        positions = plain.positions.detach()
        if projection.bias is not None:
            positions = positions + projection.bias.detach()
        self.positions = nn.Buffer(positions.flatten() if self.merged else positions[:, None])
        self.layers = plain.layers
        origin: nn.Module | None = None
        for i, layer in enumerate(cast("Iterable[EncoderLayer]", plain.layers)):
            embedded = i == 0 and norm is None
            flatten_layer(layer, self._attention(layer.attention, origin, embedded=embedded))
            origin = layer.feed_forward_norm
        self.head = FoldedHead(plain)

    def forward(
        self, history: Tensor, *, explain: bool = False
    ) -> tuple[Tensor, list[Evidence | None]]:
        """Forecast like the plain encoder."""
        statistics = None
        if self.window_norm is not None:
            series, statistics = self.window_norm(history)
        else:
            series = history.transpose(0, 1).flatten(1)
        layers = self.layers(self._tokens(series), explain=explain)
        forecast = self.head(self._by_window(layers[-1].output))
        if self.window_norm is not None and statistics is not None:
            forecast = self.window_norm.reverse(forecast, statistics)
        channels = self.config.channels
        return forecast.transpose(1, 2), [by_channel(layer.evidence, channels) for layer in layers]

    def _attention(
        self, plain: nn.Module, origin: nn.Module | None, *, embedded: bool
    ) -> nn.Module:
        attention, patches = cast("MultiHeadAttention", plain), self.config.patches
        if self.merged:
            return MergedAttention(attention, patches, origin, embedded=embedded)
        return TimeFirstAttention(attention, (patches, patches), origin, embedded=embedded)

    def _tokens(self, series: Tensor) -> Tensor:
        """`[time, batch * channels]` to tokens."""
        config = self.config
        patches = series.index_select(0, self.steps)
        if self.merged:
            tokens = patches.T.reshape(-1, config.patch) @ self.projection
            return (tokens.reshape(-1, len(self.positions)) + self.positions).reshape(tokens.shape)
        by_patch = patches.reshape(config.patches, config.patch, -1).transpose(1, 2)
        return (by_patch @ self.projection + self.positions).flatten(0, 1)

    def _by_window(self, tokens: Tensor) -> Tensor:
        """Tokens to `[batch * channels, patches, d_model]`."""
        patches, features = self.config.patches, tokens.shape[1]
        if self.merged:
            return tokens.reshape(-1, patches, features)
        return tokens.reshape(patches, -1, features).transpose(0, 1)
