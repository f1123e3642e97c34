"""Keys of the Time-Series-Library, by architecture."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.importers.keys import Row, rows
from foretell.timeaxis.calendar import Feature

LINEAR_CALENDAR = "temporal_embedding.embed.weight"
POSITIONS = "position_embedding.pe"
GLOBAL_TOKENS = "en_embedding.glb_token"
# Names of embedding tables, and the calendar features that they embed.
TABLES: Mapping[str, Feature] = {
    "month": "month",
    "day": "day_of_month",
    "weekday": "day_of_week",
    "hour": "hour",
    "minute": "quarter_hour",
}
_ENCODER_LAYER = ("encoder.attn_layers.{layer}.", "encoder_layers.{layer}.")
_DECODER_LAYER = ("decoder.layers.{layer}.", "decoder_layers.{layer}.")


def _attention(name: str) -> str:
    return "".join(
        f"{name}.{part}_projection.* {name}.{part}.*\n" for part in ("query", "key", "value", "out")
    )


# Autoformer's feed-forward network has no bias.
_FEED_FORWARD = """
conv1.*  feed_forward.expand.*
conv2.*  feed_forward.contract.*
"""
_ENCODER_NORMS = """
norm1.*  attention_norm.*
norm2.*  feed_forward_norm.*
"""
_ENCODER = _attention("attention") + _FEED_FORWARD + _ENCODER_NORMS
_BOTH_ATTENTIONS = _attention("self_attention") + _attention("cross_attention")
_NORMS_OF_BOTH = """
norm1.*  self_norm.*
norm2.*  cross_norm.*
norm3.*  feed_forward_norm.*
"""


def _embeddings(embed: str) -> list[Row]:
    calendar = f"{LINEAR_CALENDAR}  calendar.linear.weight"
    if embed != "timeF":
        middle = ".emb" if embed == "fixed" else ""
        calendar = "\n".join(
            f"temporal_embedding.{table}_embed{middle}.weight calendar.tables.{feature}.weight"
            for table, feature in TABLES.items()
        )
    table = f"""
    value_embedding.tokenConv.weight  value.convolution.weight
    {POSITIONS}                       -
    {calendar}
    """
    return [
        *rows(table, "enc_embedding.", "encoder_embedding."),
        *rows(table, "dec_embedding.", "decoder_embedding."),
    ]


def _encoder_decoder(embed: str, encoder: str, decoder: str, norms: str) -> list[Row]:
    """The keys that Autoformer and Transformer share, and further rows for layers and norms."""
    return [
        *_embeddings(embed),
        *rows(_attention("attention") + _FEED_FORWARD + encoder, *_ENCODER_LAYER),
        *rows(_BOTH_ATTENTIONS + _FEED_FORWARD + decoder, *_DECODER_LAYER),
        *rows(norms + "decoder.projection.*  projection.*"),
    ]


def autoformer_rows(embed: str) -> list[Row]:
    """The keys of an Autoformer; `embed` is the embedding of the calendar."""
    trend = "projection.weight  trend_projection.convolution.weight"
    norms = """
    encoder.norm.layernorm.*  encoder_norm.norm.*
    decoder.norm.layernorm.*  decoder_norm.norm.*
    """
    return _encoder_decoder(embed, "", trend, norms)


def transformer_rows(embed: str) -> list[Row]:
    """The keys of a Transformer; `embed` is the embedding of the calendar."""
    norms = """
    encoder.norm.*  encoder_norm.*
    decoder.norm.*  decoder_norm.*
    """
    return _encoder_decoder(embed, _ENCODER_NORMS, _NORMS_OF_BOTH, norms)


def itransformer_rows(projection: str) -> list[Row]:
    """The keys of an iTransformer; `projection` is the name of its last layer."""
    table = f"""
    enc_embedding.value_embedding.*  embedding.*
    encoder.norm.*                   encoder_norm.*
    {projection}.*                   projection.*
    """
    return rows(_ENCODER, *_ENCODER_LAYER) + rows(table)


def timexer_rows() -> list[Row]:
    """The keys of a TimeXer."""
    table = f"""
    en_embedding.value_embedding.weight  patch_projection.weight
    {GLOBAL_TOKENS}                      global_tokens
    en_embedding.{POSITIONS}             -
    ex_embedding.value_embedding.*       series_embedding.*
    encoder.norm.*                       final_norm.*
    head.linear.*                        projection.*
    """
    layer = _BOTH_ATTENTIONS + _FEED_FORWARD + _NORMS_OF_BOTH
    return rows(layer, "encoder.layers.{layer}.", "layers.{layer}.") + rows(table)


def patchtst_rows(final_norm: str) -> list[Row]:
    """The keys of a PatchTST; `final_norm` is the kind of the norm after the last layer."""
    norm = "encoder.norm.* final_norm.*"
    if final_norm == "batch":
        norm = "encoder.norm.1.** final_norm.norm.**"
    table = f"""
    patch_embedding.value_embedding.weight  patch_projection.weight
    patch_embedding.{POSITIONS}             positions
    head.linear.*                           heads.0.*
    {norm}
    """
    layer = rows(_ENCODER, _ENCODER_LAYER[0], "branches.0.layers.{layer}.")
    return layer + rows(table, ours="branches.0.")


def dlinear_rows(*, individual: bool) -> list[Row]:
    """The keys of a DLinear, with a map for each channel or one for all."""
    channel = ".{channel}" if individual else ""
    table = f"""
    Linear_Seasonal{channel}.*  seasonal{channel}.*
    Linear_Trend{channel}.*     trend{channel}.*
    """
    return rows(table)
