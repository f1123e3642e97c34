"""PatchTST in the forms that Hugging Face's transformers have (`PatchTSTForPrediction`).

Tokens are the patches of a channel (Nie et al., ICLR 2023, arXiv:2211.14730), as in the paper's
form in `patchtst.py`. In addition, channels may attend to each other, norms may come before each
part, and the head may read pooled tokens or one further token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.models.attending import AttendingConfig
from foretell.models.attention.evidence import Evidence, each
from foretell.models.attention.mechanism import Attended, Site
from foretell.models.attention.softmax import Softmax
from foretell.models.config import ARCHITECTURES, NormOfWindows
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.feed_forward import FeedForward
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.window_norms import OBSERVED_NORMS, WindowNorm

Pool = Literal["mean", "max"]


@ARCHITECTURES.add
class HuggingFacePatchTSTConfig(AttendingConfig):
    """Configuration of Hugging Face's PatchTST."""

    architecture: Literal["huggingface-patchtst"] = "huggingface-patchtst"
    has_heads: ClassVar[bool] = True
    patch: int = Field(default=16, ge=1, description="Steps of a patch.")
    stride: int = Field(
        default=8, ge=1, description="Steps from one patch to the next; the last one ends now."
    )
    own_embedding: bool = Field(
        default=False, description="Each channel has its own map from patches to tokens."
    )
    class_token: bool = Field(
        default=False, description="The head reads a further token of every channel."
    )
    channel_attention: bool = Field(
        default=False,
        description="Channels attend to each other in each patch, by the weights of the patches.",
    )
    norm: Literal["layer", "batch"] = Field(
        default="batch", description="Norm inside the encoder layers."
    )
    norm_epsilon: float = Field(default=1e-5, gt=0, description="Added to its variances.")
    pre_norm: bool = Field(default=True, description="Norm before each part, not after it.")
    feed_forward_bias: bool = Field(
        default=True, description="Whether the feed-forward networks have biases."
    )
    pooling: Pool | None = Field(
        default=None, description="Pooling over patches, before the head; none with a class token."
    )
    window_norm: NormOfWindows = "mean"

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.patch > self.context:
            raise ValueError(f"patch: {self.patch} steps are more than the context {self.context}")
        if self.calendar is not None:
            raise ValueError("calendar: PatchTST reads no calendar features")
        if self.class_token and self.pooling is not None:
            raise ValueError("pooling: the head reads the class token alone")
        if self.channel_attention and not (
            len(self.attention) in (1, self.encoder_layers)
            and all(isinstance(one, Softmax) for one in self.attention)
        ):
            raise ValueError(
                "channel_attention: needs softmax alone, with the weights of the patches"
            )
        return self

    @override
    def build(self) -> Forecaster:
        return HuggingFacePatchTST(self)

    @property
    @override
    def observed_steps(self) -> int | None:
        return self.context if self.window_norm in OBSERVED_NORMS else None

    @override
    def build_window_norm(self) -> WindowNorm | None:
        if self.window_norm not in OBSERVED_NORMS:
            return super().build_window_norm()
        return OBSERVED_NORMS[self.window_norm](self.channels, self.affine)

    @property
    def patches(self) -> int:
        """Tokens of a channel without the class token."""
        return max((self.context - self.patch) // self.stride + 1, 1)

    @property
    def start(self) -> int:
        """The step of the context where the first patch begins; earlier ones are not read."""
        return self.context - self.patch - self.stride * (self.patches - 1)

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        patches = Axis(
            of="patches",
            length=self.patches + self.class_token,
            start=self.start - self.context,
            stride=self.stride,
            width=self.patch,
            padding=int(self.class_token),
        )
        channels = Axis(of="channels", length=self.channels)
        found: dict[str, tuple[int, Site]] = {}
        for i in range(self.encoder_layers):
            by_channel = Site(
                self.d_model,
                self.heads,
                patches,
                patches,
                chained=False,
                dropout=self.dropout,
                channels=self.channels,
            )
            found[f"encoder.{i}.self"] = i, by_channel
            if self.channel_attention:
                between = Site(self.d_model, self.heads, channels, channels, dropout=self.dropout)
                found[f"encoder.{i}.channels"] = i, between
        return found


class Seen(NamedTuple):
    """Outputs of a layer.

    Attributes:
        output: `[batch, channels, tokens, d_model]`.
        patches: Attention of the tokens of each channel, if requested.
        channels: Attention of channels, if requested: the mean over tokens.
    """

    output: Tensor
    patches: Evidence | None
    channels: Evidence | None


class ChannelPatchLayer(nn.Module):
    """Attention between tokens, optionally between channels, and a feed-forward network.

    Args:
        config: Configuration of the model.
        name: Stage of its attention.

    Attributes:
        crossed: Attention between channels, if it is not `attention` itself.
    """

    def __init__(self, config: HuggingFacePatchTSTConfig, name: str) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.attention = config.build_attention(name)
        self.attention_norm = _norm(config)
        self.register_module("crossed", None)
        self.crossed: nn.Module | None
        self.channel_norm = _norm(config) if config.channel_attention else None
        self.feed_forward = FeedForward(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            dropout=config.dropout,
            bias=config.feed_forward_bias,
        )
        self.feed_forward_norm = _norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, *, explain: bool = False) -> Seen:
        """Run the layer on `[batch, channels, tokens, d_model]`."""
        channels, length = tokens.shape[1:3]
        own = self._attend(self.attention, self.attention_norm, tokens.flatten(0, 1), explain)
        tokens = own.output.reshape(-1, channels, *own.output.shape[1:])
        found = own.evidence and each(own.evidence, lambda one: _rows(one, channels))
        between = None
        if self.channel_norm is not None:
            rows = tokens.transpose(1, 2).flatten(0, 1)
            crossed = self._attend(self.crossed or self.attention, self.channel_norm, rows, explain)
            tokens = _rows(crossed.output, length).transpose(1, 2)
            between = crossed.evidence and each(
                crossed.evidence, lambda one: _rows(one, length).sum(dim=1) / length
            )
        if self.pre_norm:
            tokens = tokens + self.feed_forward(self._normed(self.feed_forward_norm, tokens))
        else:
            tokens = self._normed(self.feed_forward_norm, tokens + self.feed_forward(tokens))
        return Seen(tokens, found, between)

    def _attend(
        self, attention: nn.Module, norm: nn.Module, tokens: Tensor, explain: bool
    ) -> Attended:
        read = norm(tokens) if self.pre_norm else tokens
        found: Attended = attention(read, read, explain=explain)
        tokens = tokens + self.dropout(found.output)
        return found._replace(output=tokens if self.pre_norm else norm(tokens))

    def _normed(self, norm: nn.Module, tokens: Tensor) -> Tensor:
        return _rows(norm(tokens.flatten(0, 1)), tokens.shape[1])


class Pooling(nn.Module):
    """Mean or largest value of each feature over the tokens.

    Args:
        kind: Mean or largest value.
    """

    def __init__(self, kind: Pool) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, channels, tokens, d_model]` to `[batch, channels, d_model]`."""
        return tokens.mean(dim=2) if self.kind == "mean" else tokens.amax(dim=2)


class HuggingFacePatchTST(Forecaster):
    """Patches of each channel to its forecast."""

    config: HuggingFacePatchTSTConfig

    def __init__(self, config: HuggingFacePatchTSTConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        starts = config.start + config.stride * torch.arange(config.patches)
        steps = (starts[:, None] + torch.arange(config.patch)).flatten()
        self._steps = nn.Buffer(steps, persistent=False)
        maps = config.channels if config.own_embedding else 1
        self.embeddings = nn.ModuleList(
            nn.Linear(config.patch, config.d_model) for _ in range(maps)
        )
        self.positions = nn.Parameter(0.02 * torch.randn(config.patches, config.d_model))
        # The class token comes after the patches: attention does not depend on the order of tokens.
        self.class_token = (
            nn.Parameter(0.02 * torch.randn(config.d_model)) if config.class_token else None
        )
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            ChannelPatchLayer(config, f"encoder.{i}.self") for i in range(config.encoder_layers)
        )
        self.pooling = Pooling(config.pooling) if config.pooling is not None else None
        single = config.class_token or config.pooling is not None
        features = config.d_model * (1 if single else config.patches)
        self.heads = nn.ModuleList(
            nn.Linear(features, config.horizon) for _ in range(config.parameters)
        )

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        tokens = self._tokens(inputs.history)
        seen: dict[str, Evidence | None] = {}
        for i, layer in enumerate(self.layers):
            tokens, seen[f"encoder.{i}.self"], channels = layer(tokens, explain=explain)
            if self.config.channel_attention:
                seen[f"encoder.{i}.channels"] = channels
        if self.class_token is not None:
            features = tokens[:, :, -1]
        else:
            features = tokens.flatten(2) if self.pooling is None else self.pooling(tokens)
        outputs = torch.cat([head(features) for head in self.heads], dim=-1)
        return Explained.of(outputs.transpose(1, 2), seen)

    def _tokens(self, history: Tensor) -> Tensor:
        """`[batch, context, channels]` to `[batch, channels, tokens, d_model]`."""
        config = self.config
        series = history.transpose(1, 2).index_select(-1, self._steps)
        patches = series.reshape(-1, config.channels, config.patches, config.patch)
        maps = cast("Iterable[nn.Linear]", self.embeddings)
        if config.own_embedding:
            found = [embed(patches[:, channel]) for channel, embed in enumerate(maps)]
            tokens = torch.stack(found, dim=1)
        else:
            tokens = self.embeddings[0](patches)
        tokens = cast("Tensor", self.dropout(tokens + self.positions))
        if self.class_token is None:
            return tokens
        further = self.class_token.expand(tokens.shape[0], config.channels, 1, -1)
        return torch.cat([tokens, further], dim=2)


def _rows(rows: Tensor, count: int) -> Tensor:
    """`[batch * count, …]` to `[batch, count, …]`."""
    return rows.reshape(-1, count, *rows.shape[1:])


def _norm(config: HuggingFacePatchTSTConfig) -> nn.Module:
    if config.norm == "layer":
        return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
    norm = TokenBatchNorm(config.d_model)
    norm.norm.eps = config.norm_epsilon
    return norm
