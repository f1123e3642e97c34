"""Key layouts of published checkpoints: what each key is called here, and its shape.

Placeholders in braces number layers and heads; they and the sizes have the names of the published
code's arguments (`{e_layers}`, `d_model`), so that a file tells the arguments it was made with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from foretell.models.importers.arguments import Value

Source = Literal["tslib", "autoformer", "patchtst", "tfb"]


class Row(NamedTuple):
    """One key.

    Attributes:
        theirs: The published key.
        ours: Its name here, or None for a key that carries nothing (fixed tables, counters).
        shape: Its sizes, separated by spaces; a convolution of kernel 1 is a linear map here.
    """

    theirs: str
    ours: str | None
    shape: str = ""

    @property
    def pointwise(self) -> bool:
        """Whether the last of three sizes is a kernel of 1, which is left out here."""
        return self.shape.endswith(" 1")


class Match(NamedTuple):
    """A row, and the numbers in a key that it fits."""

    row: Row
    numbers: dict[str, int]


@dataclass(frozen=True, eq=False)
class Layout:
    """The keys of one architecture in one form.

    Attributes:
        title: What to call it in a message.
        sources: The code bases that write it.
        architecture: Which architecture it is here.
        facts: Arguments that the form of the keys tells.
        rows: All keys it may have.
    """

    title: str
    sources: tuple[Source, ...]
    architecture: str
    facts: Mapping[str, Value]
    rows: tuple[Row, ...]

    def find(self, key: str) -> Match | None:
        """The row of a published key."""
        for pattern, row in self._theirs:
            found = pattern.fullmatch(key)
            if found is not None:
                return Match(row, {name: int(text) for name, text in found.groupdict().items()})
        return None

    def translate(self, key: str) -> str | None:
        """Our name of a published key; None when it is unknown or carries nothing."""
        match = self.find(key)
        if match is None or match.row.ours is None:
            return None
        return match.row.ours.format(**match.numbers)

    def original(self, name: str) -> tuple[str, Row]:
        """The published key of one of our names."""
        for pattern, row in self._ours:
            found = pattern.fullmatch(name)
            if found is not None:
                return row.theirs.format(**found.groupdict()), row
        raise KeyError(name)

    @cached_property
    def _theirs(self) -> list[tuple[re.Pattern[str], Row]]:
        return [(_pattern(row.theirs), row) for row in self.rows]

    @cached_property
    def _ours(self) -> list[tuple[re.Pattern[str], Row]]:
        return [(_pattern(row.ours), row) for row in self.rows if row.ours is not None]


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(template)))


def _vector(theirs: str, ours: str, size: str = "d_model") -> tuple[Row, Row]:
    """Weight and bias of a norm."""
    return tuple(Row(f"{theirs}.{part}", f"{ours}.{part}", size) for part in ("weight", "bias"))  # type: ignore[return-value]


def _linear(theirs: str, ours: str, shape: str) -> tuple[Row, Row]:
    """Weight and bias of a linear map."""
    return (
        Row(f"{theirs}.weight", f"{ours}.weight", shape),
        Row(f"{theirs}.bias", f"{ours}.bias", shape.split()[0]),
    )


def _batch_norm(theirs: str, ours: str) -> tuple[Row, ...]:
    return (
        *_vector(theirs, f"{ours}.norm"),
        Row(f"{theirs}.running_mean", f"{ours}.norm.running_mean", "d_model"),
        Row(f"{theirs}.running_var", f"{ours}.norm.running_var", "d_model"),
        Row(f"{theirs}.num_batches_tracked", f"{ours}.norm.num_batches_tracked"),
    )


def _layer(theirs: str, ours: str, attentions: tuple[str, ...], *, bias: bool) -> tuple[Row, ...]:
    """Attention and feed-forward network of a layer of the Time-Series-Library."""
    rows: list[Row] = []
    for attention in attentions:
        for part in ("query", "key", "value", "out"):
            rows += _linear(
                f"{theirs}.{attention}.{part}_projection",
                f"{ours}.{attention}.{part}",
                "d_model d_model",
            )
    for conv, name, shape in (
        ("conv1", "expand", "d_ff d_model 1"),
        ("conv2", "contract", "d_model d_ff 1"),
    ):
        weight, its_bias = _linear(f"{theirs}.{conv}", f"{ours}.feed_forward.{name}", shape)
        rows += [weight, its_bias] if bias else [weight]
    return tuple(rows)


_ENCODER = "encoder.attn_layers.{e_layers}"
_DECODER = "decoder.layers.{d_layers}"
_OUR_DECODER = "decoder_layers.{d_layers}"
_TABLES = (
    ("minute", "quarter_hour", "4"),
    ("hour", "hour", "24"),
    ("weekday", "day_of_week", "7"),
    ("day", "day_of_month", "32"),
    ("month", "month", "13"),
)


def _embeddings(embed: str) -> tuple[Row, ...]:
    rows: list[Row] = []
    for side in ("enc", "dec"):
        theirs, ours = f"{side}_embedding", f"{side}oder_embedding"
        rows += [
            Row(
                f"{theirs}.value_embedding.tokenConv.weight",
                f"{ours}.value.convolution.weight",
                "d_model enc_in 3",
            ),
            Row(f"{theirs}.position_embedding.pe", None),
        ]
        temporal = f"{theirs}.temporal_embedding"
        if embed == "timeF":
            weight = Row(
                f"{temporal}.embed.weight", f"{ours}.calendar.linear.weight", "d_model marks"
            )
            rows.append(weight)
            continue
        middle = ".emb" if embed == "fixed" else ""
        rows += [
            Row(
                f"{temporal}.{table}_embed{middle}.weight",
                f"{ours}.calendar.tables.{feature}.weight",
                f"{size} d_model",
            )
            for table, feature, size in _TABLES
        ]
    return tuple(rows)


def _autoformer(embed: str) -> tuple[Row, ...]:
    return (
        *_embeddings(embed),
        *_layer(_ENCODER, "encoder_layers.{e_layers}", ("attention",), bias=False),
        *_layer(_DECODER, _OUR_DECODER, ("self_attention", "cross_attention"), bias=False),
        Row(
            f"{_DECODER}.projection.weight",
            f"{_OUR_DECODER}.trend_projection.convolution.weight",
            "c_out d_model 3",
        ),
        *_vector("encoder.norm.layernorm", "encoder_norm.norm"),
        *_vector("decoder.norm.layernorm", "decoder_norm.norm"),
        *_linear("decoder.projection", "projection", "c_out d_model"),
    )


def _transformer(embed: str) -> tuple[Row, ...]:
    return (
        *_embeddings(embed),
        *_encoder_layers("encoder_layers.{e_layers}"),
        *_layer(_DECODER, _OUR_DECODER, ("self_attention", "cross_attention"), bias=True),
        *_vector(f"{_DECODER}.norm1", f"{_OUR_DECODER}.self_norm"),
        *_vector(f"{_DECODER}.norm2", f"{_OUR_DECODER}.cross_norm"),
        *_vector(f"{_DECODER}.norm3", f"{_OUR_DECODER}.feed_forward_norm"),
        *_vector("encoder.norm", "encoder_norm"),
        *_vector("decoder.norm", "decoder_norm"),
        *_linear("decoder.projection", "projection", "c_out d_model"),
    )


def _encoder_layers(ours: str) -> tuple[Row, ...]:
    return (
        *_layer(_ENCODER, ours, ("attention",), bias=True),
        *_vector(f"{_ENCODER}.norm1", f"{ours}.attention_norm"),
        *_vector(f"{_ENCODER}.norm2", f"{ours}.feed_forward_norm"),
    )


def _patchtst(final_norm: str) -> tuple[Row, ...]:
    return (
        Row(
            "patch_embedding.value_embedding.weight",
            "branches.0.patch_projection.weight",
            "d_model patch_len",
        ),
        Row("patch_embedding.position_embedding.pe", "branches.0.positions", "patches d_model"),
        *_encoder_layers("branches.0.layers.{e_layers}"),
        *(
            _batch_norm("encoder.norm.1", "branches.0.final_norm")
            if final_norm == "batch"
            else _vector("encoder.norm", "branches.0.final_norm")
        ),
        *_linear("head.linear", "branches.0.heads.0", "pred_len flattened"),
    )


def _official(norm: str, branches: tuple[str, ...], *, individual: bool) -> tuple[Row, ...]:
    rows: list[Row] = []
    for i, branch in enumerate(branches):
        ours, layer = f"branches.{i}", f"branches.{i}.layers.{{e_layers}}"
        backbone = f"{branch}.backbone"
        theirs = f"{backbone}.encoder.layers.{{e_layers}}"
        for part, name in (("W_Q", "query"), ("W_K", "key"), ("W_V", "value"), ("to_out.0", "out")):
            rows += _linear(
                f"{theirs}.self_attn.{part}", f"{layer}.attention.{name}", "d_model d_model"
            )
        for part, name in (("norm_attn", "attention_norm"), ("norm_ffn", "feed_forward_norm")):
            rows += (
                _batch_norm(f"{theirs}.{part}.1", f"{layer}.{name}")
                if norm == "batch"
                else _vector(f"{theirs}.{part}", f"{layer}.{name}")
            )
        rows += [
            Row(f"{theirs}.self_attn.sdp_attn.scale", None),
            *_linear(f"{theirs}.ff.0", f"{layer}.feed_forward.expand", "d_ff d_model"),
            *_linear(f"{theirs}.ff.3", f"{layer}.feed_forward.contract", "d_model d_ff"),
            Row(f"{branch}.revin_layer.affine_weight", f"{ours}.instance_norm.weight", "enc_in"),
            Row(f"{branch}.revin_layer.affine_bias", f"{ours}.instance_norm.bias", "enc_in"),
            Row(f"{backbone}.W_pos", f"{ours}.positions", "patches d_model"),
            *_linear(f"{backbone}.W_P", f"{ours}.patch_projection", "d_model patch_len"),
            *_linear(
                f"{branch}.head.{'linears.{enc_in}' if individual else 'linear'}",
                f"{ours}.heads.{'{enc_in}' if individual else '0'}",
                "pred_len flattened",
            ),
        ]
    return tuple(rows)


_SERIES: tuple[Source, ...] = ("tslib", "autoformer", "tfb")

LAYOUTS: tuple[Layout, ...] = (
    *(
        Layout("Autoformer", _SERIES, "autoformer", {"embed": embed}, _autoformer(embed))
        for embed in ("timeF", "learned", "fixed")
    ),
    *(
        Layout("Transformer", _SERIES, "transformer", {"embed": embed}, _transformer(embed))
        for embed in ("timeF", "learned", "fixed")
    ),
    *(
        Layout("PatchTST", ("tslib", "tfb"), "patchtst", {"final_norm": norm}, _patchtst(norm))
        for norm in ("batch", "layer")
    ),
    *(
        Layout(
            "PatchTST of its paper's code",
            ("patchtst",),
            "patchtst",
            {
                "norm": norm,
                "decomposition": int(len(branches) > 1),
                "individual": int(individual),
            },
            _official(norm, branches, individual=individual),
        )
        for norm in ("batch", "layer")
        for branches in (("model",), ("model_res", "model_trend"))
        for individual in (False, True)
    ),
)
