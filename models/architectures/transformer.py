"""Transformer: encoder and decoder, the whole horizon in one pass or some steps at a time.

Vaswani et al., 2017 (arXiv:1706.03762), with Informer's one-pass decoding and embeddings (Zhou et
al., 2021, arXiv:2012.07436), as in the Time-Series-Library.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.evidence import Dense, Evidence
from foretell.models.attention.mechanism import Site
from foretell.models.config import ARCHITECTURES
from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.decoding import BEFORE, LaggedEmbedding, off_diagonal, whole_map
from foretell.models.layers.transformer import Decoded, DecoderLayer

# A graph contains each of them.
_MOST_CHUNKS = 64


def _chunk(known: dict[str, int]) -> int:
    free = known.get("context", 0) - known.get("label", 0)
    return max(min(24, known.get("horizon", 24), free), 1)


@ARCHITECTURES.add
class TransformerConfig(EncoderDecoderConfig):
    """Configuration of a Transformer.

    Attributes:
        memory: Encoder layer that a decoder layer reads: the last, or the one of the same height.
        decoding: The whole horizon in one pass, or chunks of it, each of which reads earlier ones.
        decoding_chunk: Steps of a chunk.
        feeding: Values that a decoder of chunks reads in training: the truth (`teacher`), a growing
            share of its own forecasts (`scheduled`, Mihaylova and Martins, 2019, arXiv:1906.04331,
            in two passes), or its forecasts alone (`free`).
        causal: Whether a step of the decoder must not attend to later ones.
        guidance: Weight of a penalty on cross-attention far from the diagonal, in training
            (Tachibana et al., 2018, arXiv:1710.08969).
    """

    architecture: Literal["transformer"] = "transformer"
    memory: Literal["last", "same"] = Field(
        default="last", description="Encoder layer that a decoder layer reads."
    )
    decoding: Literal["one_pass", "autoregressive"] = Field(
        default="one_pass", description="All steps at once, or in chunks that read earlier chunks."
    )
    decoding_chunk: int = Field(
        default_factory=_chunk,
        ge=1,
        description="Steps decoded at a time by autoregressive decoding; at most 24 if not given.",
    )
    feeding: Literal["teacher", "scheduled", "free"] = Field(
        default="teacher",
        description="Values that autoregressive decoding reads in training: the truth, a growing "
        "share of its own forecasts, or its forecasts alone.",
    )
    causal: bool = Field(
        default=True, description="Whether a step of the decoder must not attend to later steps."
    )
    guidance: float = Field(
        default=0.0,
        ge=0,
        description="Weight of a penalty on cross-attention far from the diagonal, in training.",
    )

    @model_validator(mode="after")
    def _check_decoding(self) -> Self:
        chunked = self.decoding == "autoregressive"
        if chunked and self.label + self.decoding_chunk > self.context:
            raise ValueError(
                f"decoding_chunk: label and chunk, {self.label} and {self.decoding_chunk} steps, "
                f"are more than the context {self.context}"
            )
        if chunked and len(self.chunks) > _MOST_CHUNKS:
            raise ValueError(
                f"decoding_chunk: {len(self.chunks)} chunks of {self.decoding_chunk} steps are "
                f"more than the {_MOST_CHUNKS} that a graph can contain"
            )
        if chunked and self.targets is not None:
            raise ValueError(
                "decoding: autoregressive decoding reads its own forecasts, so it must forecast "
                "all channels, not some targets"
            )
        if chunked and not self.causal:
            raise ValueError("causal: autoregressive decoding is always causal")
        if self.head is not None and (chunked or self.guidance):
            raise ValueError(
                "head: needs one_pass decoding without guidance: chunks read values, and only the "
                "likelihood is trained"
            )
        if not chunked and self.feeding != "teacher":
            raise ValueError("feeding: only autoregressive decoding reads forecasts in training")
        if self.guidance:
            crossed = [stage for stage in self.describe_stages() if ".cross" in stage.name]
            if not all(stage.form == "dense" and stage.key.in_time for stage in crossed):
                raise ValueError("guidance: the cross-attention shows no map of steps to guide")
        return self

    @property
    @override
    def causal_decoder(self) -> bool:
        return self.causal

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        cached = self.decoding == "autoregressive"
        return {
            name: (layer, site._replace(cached=cached and name.startswith("decoder.")))
            for name, (layer, site) in super().sites().items()
        }

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """First step of each chunk and the step after it; the first includes the known steps."""
        ends = range(self.label + self.decoding_chunk, self.decoder_length, self.decoding_chunk)
        bounds = [0, *ends, self.decoder_length]
        return list(pairwise(bounds))

    def build_decoder_embedding(self) -> nn.Module:
        """Untrained embedding of the decoder's steps."""
        if self.decoding == "one_pass":
            return self.build_embedding(self.decoder_length, positions=True)
        return LaggedEmbedding(
            self.channels,
            self.d_model,
            self.decoder_length,
            calendar=self.calendar,
            kind=self.embedding,
            dropout=self.dropout,
            covariates=self.covariate_features,
        )

    @override
    def build(self) -> Forecaster:
        return Transformer(self)


class Transformer(Forecaster):
    """Every step of context and horizon is a token."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.encoder_embedding = config.build_embedding(config.context, positions=True)
        self.encoder_layers = config.build_encoder_layers()
        self.encoder_norm = nn.LayerNorm(config.d_model)
        self.decoder_embedding = config.build_decoder_embedding()
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
        self.projection = nn.Linear(config.d_model, config.parameters * config.channels)

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        inputs = self.with_time_features(inputs)
        history, past, ahead = inputs[:3]
        memories, seen = self._encode(inputs, explain=explain)
        calendar = self.config.decoder_calendar(past, ahead)
        if self.config.decoding == "autoregressive":
            found = self._in_chunks(history, calendar, memories, explain=explain)
        else:
            found = self._in_one_pass(history, calendar, memories, explain=explain)
        return Explained.of(found[0], seen | found[1])

    @override
    def learn(self, inputs: Inputs, target: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        inputs = self.with_time_features(inputs)
        history, past, ahead = inputs[:3]
        memories, _ = self._encode(inputs, explain=False)
        calendar = self.config.decoder_calendar(past, ahead)
        given, guided = (history, calendar, memories), self.config.guidance > 0
        if self.config.decoding == "one_pass":
            forecast, seen = self._in_one_pass(*given, explain=guided)
        elif self.config.feeding == "free":
            forecast, seen = self._in_chunks(*given, explain=guided)
        else:
            if self.config.feeding == "scheduled":
                with torch.no_grad():
                    own, _ = self._in_chunks(*given, truth=target, explain=False)
                taken = torch.rand(target.shape[:2], device=target.device) < progress
                target = torch.where(taken[..., None], own.to(target), target)
            forecast, seen = self._in_chunks(*given, truth=target, explain=guided)
        penalty = forecast.new_zeros(())
        for stage, evidence in Explained.of(forecast, seen).attention.items():
            if ".cross" in stage and isinstance(evidence, Dense):
                share = evidence.weights.shape[1] / self.config.heads
                penalty = penalty + self.config.guidance * share * off_diagonal(evidence.weights)
        return forecast, penalty

    def _encode(
        self, inputs: Inputs, *, explain: bool
    ) -> tuple[list[Tensor], dict[str, Evidence | None]]:
        """The memory of each decoder layer, and the encoder's evidence."""
        tokens = self.encoder_embedding(inputs.history, inputs.history_calendar)
        layers = self.encoder_layers(tokens, explain=explain)
        seen = {f"encoder.{i}.self": layer.evidence for i, layer in enumerate(layers)}
        last = self.encoder_norm(layers[-1].output)
        if self.config.memory == "last":
            return [last] * self.config.decoder_layers, seen
        heights = [self.encoder_norm(layer.output) for layer in layers[:-1]] + [last]
        above = max(self.config.decoder_layers - len(heights), 0)
        return (heights + [last] * above)[: self.config.decoder_layers], seen

    def _in_one_pass(
        self, history: Tensor, calendar: Tensor | None, memories: list[Tensor], *, explain: bool
    ) -> tuple[Tensor, dict[str, Evidence | None]]:
        # The horizon is unknown: the decoder sees zeros there.
        known = history[:, self.config.context - self.config.label :]
        series = functional.pad(known, (0, 0, 0, self.config.horizon))
        tokens = self.decoder_embedding(series, calendar)
        seen: dict[str, Evidence | None] = {}
        for i, (layer, memory) in enumerate(zip(self.decoder_layers, memories, strict=True)):
            decoded: Decoded = layer(tokens, memory, explain=explain)
            tokens = decoded.output
            seen[f"decoder.{i}.self"], seen[f"decoder.{i}.cross"] = decoded.own, decoded.cross
        forecast: Tensor = self.projection(self.decoder_norm(tokens))
        return self.config.by_parameter(forecast[:, -self.config.horizon :]), seen

    def _in_chunks(
        self,
        history: Tensor,
        calendar: Tensor | None,
        memories: list[Tensor],
        *,
        explain: bool,
        truth: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Evidence | None]]:
        """Decode chunk by chunk, or in one pass with the truth `[batch, horizon, channels]`."""
        config = self.config
        lagged = config.label + config.decoding_chunk + BEFORE
        known = functional.pad(history[:, -lagged:], (0, 0, max(lagged - config.context, 0), 0))
        if truth is not None:
            known = torch.cat([known, truth], dim=1)
        chunks = config.chunks if truth is None else [(0, config.decoder_length)]
        layers = [cast("DecoderLayer", layer) for layer in self.decoder_layers]
        caches = [layer.begin(memory) for layer, memory in zip(layers, memories, strict=True)]
        forecasts: list[Tensor] = []
        maps: dict[str, list[Tensor]] = {}
        for start, end in chunks:
            steps = None if calendar is None else calendar[:, start:end]
            tokens = self.decoder_embedding(known[:, start : end + BEFORE], steps, start)
            for i, layer in enumerate(layers):
                (tokens, own, cross), caches[i] = layer.extend(tokens, caches[i])
                if explain:
                    shown = {"self": (own, config.decoder_length), "cross": (cross, config.context)}
                    for name, (evidence, length) in shown.items():
                        found = whole_map(evidence, length)
                        maps.setdefault(f"decoder.{i}.{name}", []).append(found)
            projected = self.projection(self.decoder_norm(tokens))
            forecasts.append(projected[:, max(config.label - start, 0) :])
            known = torch.cat([known, forecasts[-1]], dim=1)
        seen: dict[str, Evidence | None] = {
            name: Dense(torch.cat(parts, dim=2)) for name, parts in maps.items()
        }
        return torch.cat(forecasts, dim=1), seen
