"""The Time-Series-Library, and code with the same keys: thuml/Autoformer and TFB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from foretell.importers.arguments import Values
from foretell.importers.code_base import (
    Architecture,
    CodeBase,
    State,
    count_patches,
    has,
    numbers,
    sizes,
    steps_of_patches,
)
from foretell.importers.errors import ImporterError
from foretell.importers.keys import KeyMap, Row, rows
from foretell.models.layers.embedding import sinusoids
from foretell.timeaxis.calendar import Calendar, Feature
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

DEFAULTS = {"seq_len": 96, "label_len": 48, "pred_len": 96, "features": "M", "target": "OT"}
DEFAULTS |= {"n_heads": 8, "factor": 1.0, "moving_avg": 25, "activation": "gelu"}
TOKENS: dict[str, str | None] = {"enc_in": "channels", "seq_len": "context", "pred_len": "horizon"}
TOKENS |= {"d_model": "d_model", "n_heads": "heads", "d_ff": "d_ff", "e_layers": "encoder_layers"}
TOKENS |= {"dropout": "dropout", "activation": "activation"}
_SERIES = TOKENS | {"label_len": "label", "d_layers": "decoder_layers", "embed": "embedding"}
_ENCODER_LAYER = ("encoder.attn_layers.{layer}.", "encoder_layers.{layer}.")
_DECODER_LAYER = ("decoder.layers.{layer}.", "decoder_layers.{layer}.")
# Names of embedding tables, and the calendar features that they embed.
_TABLES: Mapping[str, Feature] = {
    "month": "month",
    "day": "day_of_month",
    "weekday": "day_of_week",
    "hour": "hour",
    "minute": "quarter_hour",
}
_LINEAR_CALENDAR = ".temporal_embedding.embed.weight"
_POSITIONS = "position_embedding.pe"
_OUTPUT = re.compile(r"decoder\.(layers\.\d+\.)?projection\.(weight|bias)")
_UNITS = {"s": "s", "t": "min", "h": "h", "d": "D", "b": "B", "w": "W", "m": "M"}


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


def _embeddings(embed: str) -> list[Row]:
    calendar = "temporal_embedding.embed.weight  calendar.linear.weight"
    if embed != "timeF":
        middle = ".emb" if embed == "fixed" else ""
        calendar = "\n".join(
            f"temporal_embedding.{table}_embed{middle}.weight calendar.tables.{feature}.weight"
            for table, feature in _TABLES.items()
        )
    table = f"""
    value_embedding.tokenConv.weight  value.convolution.weight
    {_POSITIONS}                      -
    {calendar}
    """
    return [
        *rows(table, "enc_embedding.", "encoder_embedding."),
        *rows(table, "dec_embedding.", "decoder_embedding."),
    ]


def _encoder_decoder(embed: str, encoder: str, decoder: str, norms: str) -> list[Row]:
    """The keys that Autoformer and Transformer share, and further rows for layers and norms."""
    attentions = _attention("self_attention") + _attention("cross_attention")
    return [
        *_embeddings(embed),
        *rows(_attention("attention") + _FEED_FORWARD + encoder, *_ENCODER_LAYER),
        *rows(attentions + _FEED_FORWARD + decoder, *_DECODER_LAYER),
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
    decoder = """
    norm1.*  self_norm.*
    norm2.*  cross_norm.*
    norm3.*  feed_forward_norm.*
    """
    norms = """
    encoder.norm.*  encoder_norm.*
    decoder.norm.*  decoder_norm.*
    """
    return _encoder_decoder(embed, _ENCODER_NORMS, decoder, norms)


def itransformer_rows(projection: str) -> list[Row]:
    """The keys of an iTransformer; `projection` is the name of its last layer."""
    table = f"""
    enc_embedding.value_embedding.*  embedding.*
    encoder.norm.*                   encoder_norm.*
    {projection}.*                   projection.*
    """
    return rows(_ENCODER, *_ENCODER_LAYER) + rows(table)


def _patchtst_keys(state: State) -> KeyMap:
    norm = "encoder.norm.* final_norm.*"
    if _final_norm(state) == "batch":
        norm = "encoder.norm.1.** final_norm.norm.**"
    table = f"""
    patch_embedding.value_embedding.weight  patch_projection.weight
    patch_embedding.{_POSITIONS}            positions
    head.linear.*                           heads.0.*
    {norm}
    """
    layer = "branches.0.layers.{layer}."
    return KeyMap(
        "PatchTST", rows(_ENCODER, _ENCODER_LAYER[0], layer) + rows(table, ours="branches.0.")
    )


def _dlinear_keys(state: State) -> KeyMap:
    channel = ".{channel}" if has(state, "Linear_Seasonal.0.") else ""
    table = f"""
    Linear_Seasonal{channel}.*  seasonal{channel}.*
    Linear_Trend{channel}.*     trend{channel}.*
    """
    return KeyMap("DLinear", rows(table))


def _embed(state: State) -> str:
    if has(state, _LINEAR_CALENDAR):
        return "timeF"
    return "fixed" if has(state, "_embed.emb.") else "learned"


def _final_norm(state: State) -> str:
    return "batch" if has(state, "encoder.norm.1.") else "layer"


def _calendar(state: State) -> Calendar | None:
    """The calendar features, from the width of a linear embedding or the names of tables."""
    linear = state.get(f"enc_embedding{_LINEAR_CALENDAR}")
    if linear is not None:
        calendars = {len(each.features): each for each in map(_scaled, _UNITS)}
        if linear.shape[-1] not in calendars:
            raise ImporterError(f"it reads {linear.shape[-1]} calendar features; expected 1 to 6")
        return calendars[linear.shape[-1]]
    tables = {name for name in _TABLES if has(state, f".temporal_embedding.{name}_embed.")}
    features = tuple(feature for name, feature in _TABLES.items() if name in tables)
    return Calendar(encoding="integer", features=features) if features else None


def _scaled(freq: str) -> Calendar:
    return Calendar.for_frequency(Frequency.parse(_UNITS.get(freq, freq)), "scaled")


def _are_learned(state: State) -> bool:
    """Whether the tables of positions were trained, since they are not sinusoids."""
    return any(
        key.endswith(_POSITIONS)
        and table.ndim == 3
        and not torch.allclose(table[0].float(), sinusoids(*table.shape[1:]), atol=1e-3)
        for key, table in state.items()
    )


def _of_encoder(state: State) -> dict[str, Any]:
    contract = "encoder.attn_layers.0.conv2.weight"
    found = sizes(state, {"d_model": (contract, 0), "d_ff": (contract, 1)})
    return found | {"e_layers": numbers(state, "encoder.attn_layers.#.")}


def _of_series(state: State, values: Values) -> Values:
    places = {
        "enc_in": ("enc_embedding.value_embedding.tokenConv.weight", 1),
        "c_out": ("decoder.projection.weight", 0),
    }
    found = _of_encoder(state) | sizes(state, places)
    found |= {"d_layers": numbers(state, "decoder.layers.#."), "embed": _embed(state)}
    calendar, freq = _calendar(state), values.get("freq")
    if calendar is None:
        return found
    there, wanted = len(calendar.features), len(_scaled(freq).features) if freq in _UNITS else None
    if calendar.encoding == "scaled" and wanted not in (None, there):
        raise ImporterError(
            f"contradictions: freq {freq} has {wanted} calendar features, the file has {there}"
        )
    return found | {"calendar": calendar}


def _of_transformer(state: State, values: Values) -> Values:
    if _are_learned(state):
        raise ImporterError("its positions are not the sinusoids of the published code")
    return _of_series(state, values)


def _of_patchtst(state: State, values: Values) -> Values:
    places = {
        "patch_len": ("patch_embedding.value_embedding.weight", 1),
        "pred_len": ("head.linear.weight", 0),
        "flattened": ("head.linear.weight", 1),
    }
    found = _of_encoder(state) | sizes(state, places)
    found["final_norm"] = _final_norm(state)
    found["positions"] = "learned" if _are_learned(state) else "sinusoidal"
    patches = found.pop("flattened") // found["d_model"]
    return found | steps_of_patches(patches, {**values, **found})


def _of_dlinear(state: State, _: Values) -> Values:
    channels = numbers(state, "Linear_Seasonal.#.")
    weight = "Linear_Seasonal.0.weight" if channels else "Linear_Seasonal.weight"
    found = sizes(state, {"seq_len": (weight, 1), "pred_len": (weight, 0)})
    return found | {"individual": int(channels > 0)} | ({"enc_in": channels} if channels else {})


def _of_itransformer(state: State, _: Values) -> Values:
    places = {
        "seq_len": ("enc_embedding.value_embedding.weight", 1),
        "pred_len": ("projection.weight", 0),
    }
    return _of_encoder(state) | sizes(state, places)


def with_lags(values: Values) -> dict[str, Any]:
    """The attention mechanism of an Autoformer."""
    own = {name: values[name] for name in ("factor", "lags")}
    return {"attention": {"mechanism": "autocorrelation", **own}}


def with_patches(values: Values) -> dict[str, Any]:
    """Padding and instance norm of a PatchTST."""
    centre = "last" if values.get("subtract_last") else "mean"
    norm = centre if values["revin"] else None
    return {"pad_end": values["padding_patch"] == "end", "window_norm": norm}


def _with_marks(values: Values) -> dict[str, Any]:
    """The calendar features that were tokens, which no weight shows."""
    if not values["marks"]:
        return {}
    if values["embed"] != "timeF":
        raise ImporterError(
            f"embed {values['embed']}: calendar features as tokens are read for timeF only"
        )
    try:
        return {"calendar": _scaled(values["freq"])}
    except FrequencyError as error:
        raise ImporterError(f"freq {values['freq']}: {error}") from None


def _spread_output(state: State, values: Values) -> State:
    """Repeat a single row of outputs for all channels, since the published code broadcasts it.

    The trends of Autoformer start with all channels, so that a single output is added to each.
    """
    if values["c_out"] != 1 or values["enc_in"] == 1:
        return state
    rows = {key: each for key, each in state.items() if _OUTPUT.fullmatch(key)}
    return {**state, **{key: torch.cat([row] * values["enc_in"]) for key, row in rows.items()}}


def _cut_positions(state: State, values: Values) -> State:
    """Drop the table of sinusoids, or keep the trained rows that are used."""
    key = f"patch_embedding.{_POSITIONS}"
    if values["positions"] == "learned":
        return {**state, key: state[key][0, : count_patches(values)]}
    return {name: tensor for name, tensor in state.items() if name != key}


_AUTOFORMER = Architecture(
    lambda state: KeyMap("Autoformer", autoformer_rows(_embed(state))),
    _of_series,
    _SERIES
    | {"factor": None, "moving_avg": "moving_average", "lags": None, "calendar": "calendar"},
    with_lags,
    _spread_output,
)
_TRANSFORMER = Architecture(
    lambda state: KeyMap("Transformer", transformer_rows(_embed(state))),
    _of_transformer,
    _SERIES | {"calendar": "calendar"},
    prepare=_spread_output,
)
_PATCHTST = Architecture(
    _patchtst_keys,
    _of_patchtst,
    TOKENS
    | {"patch_len": "patch", "stride": "stride", "padding_patch": None, "revin": None}
    | {"subtract_last": None, "final_norm": "final_norm", "positions": "positions"},
    with_patches,
    _cut_positions,
)
_DLINEAR = Architecture(
    _dlinear_keys,
    _of_dlinear,
    {"enc_in": "channels", "seq_len": "context", "pred_len": "horizon"}
    | {"moving_avg": "moving_average", "individual": "individual"},
)
_ITRANSFORMER = Architecture(
    lambda _: KeyMap("iTransformer", itransformer_rows("projection")),
    _of_itransformer,
    TOKENS | {"marks": None, "embed": None, "freq": None},
    _with_marks,
)
_TIME_SERIES = {"autoformer": _AUTOFORMER, "transformer": _TRANSFORMER}
# An inverse FFT without a length argument loses a lag of an odd length: the lags are `even`.
_FIXED = {"lags": "even", "padding_patch": "end", "revin": 1, "subtract_last": 0}


def _fixed_in_tfb(values: Values) -> Values:
    """Fixed arguments of TFB, whose decoder starts with half of the history.

    For a single channel it starts with `pred_len` steps.
    """
    if values.get("enc_in") == 1:
        label = values.get("pred_len")
    else:
        label = values["seq_len"] // 2 if "seq_len" in values else None
    return _FIXED if label is None else {**_FIXED, "label_len": label}


CODE_BASES = {
    "tslib": CodeBase(
        "the Time-Series-Library",
        {
            **_TIME_SERIES,
            "dlinear": _DLINEAR,
            "itransformer": _ITRANSFORMER,
            "patchtst": _PATCHTST,
        },
        DEFAULTS,
        lambda _: {**_FIXED, "usual_stride": 8},
    ),
    "autoformer": CodeBase("thuml/Autoformer", _TIME_SERIES, DEFAULTS, lambda _: {"lags": "all"}),
    "tfb": CodeBase(
        "TFB",
        {**_TIME_SERIES, "patchtst": _PATCHTST},
        {"n_heads": 8, "factor": 1.0, "moving_avg": 25, "activation": "gelu", "stride": 8},
        _fixed_in_tfb,
        target_last=False,
    ),
}
