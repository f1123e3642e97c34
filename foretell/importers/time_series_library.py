"""The Time-Series-Library, and the code bases with the same layouts: thuml/Autoformer and TFB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from foretell.importers.arguments import (
    Argument,
    Arguments,
    Option,
    Value,
    count,
    one_of,
    switch,
    whole,
)
from foretell.importers.code_base import Architecture, CodeBase, State, Values
from foretell.importers.errors import ImporterError
from foretell.importers.layouts import Layout, Row, rows
from foretell.importers.patches import add_patches, count_patches
from foretell.timeaxis.calendar import Calendar, Feature
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

# Autoformer's code, which PatchTST's and the Time-Series-Library grew out of, has most of these.
OPTIONS = {
    "label_len": Option(whole(0), "steps of history the decoder starts with"),
    "d_layers": Option(count, "decoder layers"),
    "factor": Option(float, "lags kept, in units of ln(length)"),
    "moving_avg": Option(count, "steps of the moving average"),
    "embed": Option(one_of("timeF", "fixed", "learned"), "timeF, fixed or learned"),
    "freq": Option(str, "s, t, h, d, b, w or m: which calendar features were given"),
    "patch_len": Option(count, "steps of a patch"),
    "stride": Option(count, "steps from one patch to the next"),
    "padding_patch": Option(one_of("end", "None"), "end or None"),
    "revin": Option(switch, "1 if each window is normalised, else 0"),
    "subtract_last": Option(switch, "1 if it subtracts the last value, 0 if the mean"),
    "individual": Option(switch, "1 with a head per channel, else 0"),
    "marks": Option(switch, "1 if calendar features are tokens next to the channels, else 0"),
}
DEFAULTS: dict[str, Value] = {
    "seq_len": 96,
    "label_len": 48,
    "pred_len": 96,
    "features": "M",
    "target": "OT",
    "n_heads": 8,
    "factor": 1.0,
    "moving_avg": 25,
    "activation": "gelu",
}
# The Time-Series-Library puts the task in front, and since 2024 has `expand` and `dc`; other forks
# leave out `dt`.
SETTING = re.compile(
    r"(?:(?:(?P<task_name>(?:long|short)_term_forecast|zero_shot_forecast|imputation|"
    r"anomaly_detection|classification)_)?.*_(?P<model>[A-Za-z]+)_(?P<data>[A-Za-z0-9]+)|.+)"
    r"_ft(?P<features>MS|M|S)_sl(?P<seq_len>\d+)_ll(?P<label_len>\d+)_pl(?P<pred_len>\d+)"
    r"_dm(?P<d_model>\d+)_nh(?P<n_heads>\d+)_el(?P<e_layers>\d+)_dl(?P<d_layers>\d+)_df(?P<d_ff>\d+)"
    r"(?:_expand\d+_dc\d+)?_fc(?P<factor>\d+)_eb(?P<embed>timeF|fixed|learned)(?:_.*)?"
)
TOKENS: dict[str, str | None] = {
    "enc_in": "channels",
    "seq_len": "context",
    "pred_len": "horizon",
    "d_model": "d_model",
    "n_heads": "heads",
    "d_ff": "d_ff",
    "e_layers": "encoder_layers",
    "dropout": "dropout",
    "activation": "activation",
}
_SERIES = {**TOKENS, "label_len": "label", "d_layers": "decoder_layers", "embed": "embedding"}
_ENCODER_LAYER = ("encoder.attn_layers.{e_layers}.", "encoder_layers.{e_layers}.")
_DECODER_LAYER = ("decoder.layers.{d_layers}.", "decoder_layers.{d_layers}.")
# The tables of calendar features, each with its feature.
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
        f"{name}.{part}_projection.* {name}.{part}.* d_model d_model\n"
        for part in ("query", "key", "value", "out")
    )


# That of Autoformer has no bias.
_FEED_FORWARD = """
conv1.*  feed_forward.expand.*    d_ff d_model 1
conv2.*  feed_forward.contract.*  d_model d_ff 1
"""
_ENCODER_NORMS = """
norm1.*  attention_norm.*     d_model
norm2.*  feed_forward_norm.*  d_model
"""
_ENCODER = _attention("attention") + _FEED_FORWARD + _ENCODER_NORMS


def _embeddings(embed: str) -> tuple[Row, ...]:
    calendar = "temporal_embedding.embed.weight  calendar.linear.weight  d_model features_in"
    if embed != "timeF":
        middle = ".emb" if embed == "fixed" else ""
        calendar = "\n".join(
            f"temporal_embedding.{table}_embed{middle}.weight "
            f"calendar.tables.{feature}.weight rows d_model"
            for table, feature in _TABLES.items()
        )
    table = f"""
    value_embedding.tokenConv.weight  value.convolution.weight  d_model enc_in 3
    {_POSITIONS}                      -
    {calendar}
    """
    return (
        *rows(table, "enc_embedding.", "encoder_embedding."),
        *rows(table, "dec_embedding.", "decoder_embedding."),
    )


def _encoder_decoder(embed: str, encoder: str, decoder: str, norms: str) -> tuple[Row, ...]:
    """What Autoformer and Transformer share, and further rows of their layers and at the end."""
    attentions = _attention("self_attention") + _attention("cross_attention")
    return (
        *_embeddings(embed),
        *rows(_attention("attention") + _FEED_FORWARD + encoder, *_ENCODER_LAYER),
        *rows(attentions + _FEED_FORWARD + decoder, *_DECODER_LAYER),
        *rows(norms),
        *rows("decoder.projection.*  projection.*  c_out d_model"),
    )


def autoformer_rows(embed: str) -> tuple[Row, ...]:
    """The keys of an Autoformer, by how it embeds the calendar."""
    trend = "projection.weight  trend_projection.convolution.weight  c_out d_model 3"
    norms = """
    encoder.norm.layernorm.*  encoder_norm.norm.*  d_model
    decoder.norm.layernorm.*  decoder_norm.norm.*  d_model
    """
    return _encoder_decoder(embed, "", trend, norms)


def transformer_rows(embed: str) -> tuple[Row, ...]:
    """The keys of a Transformer, likewise."""
    decoder = """
    norm1.*  self_norm.*          d_model
    norm2.*  cross_norm.*         d_model
    norm3.*  feed_forward_norm.*  d_model
    """
    norms = """
    encoder.norm.*  encoder_norm.*  d_model
    decoder.norm.*  decoder_norm.*  d_model
    """
    return _encoder_decoder(embed, _ENCODER_NORMS, decoder, norms)


def _patchtst(final_norm: str) -> tuple[Row, ...]:
    norm = {"batch": "encoder.norm.1.** final_norm.norm.**", "layer": "encoder.norm.* final_norm.*"}
    return (
        *rows(_ENCODER, _ENCODER_LAYER[0], "branches.0.layers.{e_layers}."),
        *rows(
            f"""
            patch_embedding.value_embedding.weight  patch_projection.weight  d_model patch_len
            patch_embedding.{_POSITIONS}            positions                patches d_model
            head.linear.*                           heads.0.*                pred_len flattened
            {norm[final_norm]}  d_model
            """,
            ours="branches.0.",
        ),
    )


def _dlinear(individual: int) -> tuple[Row, ...]:
    channel = ".{enc_in}" if individual else ""
    return rows(
        f"""
        Linear_Seasonal{channel}.*  seasonal{channel}.*  pred_len seq_len
        Linear_Trend{channel}.*     trend{channel}.*     pred_len seq_len
        """
    )


def itransformer_rows(projection: str) -> tuple[Row, ...]:
    """The keys of an iTransformer, by what its last map is called."""
    return (
        *rows(_ENCODER, *_ENCODER_LAYER),
        *rows(
            f"""
            enc_embedding.value_embedding.*  embedding.*     d_model seq_len
            encoder.norm.*                   encoder_norm.*  d_model
            {projection}.*                   projection.*    pred_len d_model
            """
        ),
    )


def _infer_calendar(state: State, _: Mapping[str, int]) -> Values:
    """The calendar of a linear map from so many features, or that of the tables there are."""
    widths = [tensor.shape[-1] for key, tensor in state.items() if key.endswith(_LINEAR_CALENDAR)]
    calendars = {len((calendar := _scaled(unit)).features): calendar for unit in _UNITS}
    for width in widths:
        if width in calendars:
            return {"calendar": calendars[width]}
    if widths:
        raise ImporterError(f"it reads {max(widths)} calendar features; expected 1 to 6")
    features = tuple(
        feature
        for table, feature in _TABLES.items()
        if any(f".temporal_embedding.{table}_embed." in key for key in state)
    )
    return {"calendar": Calendar(encoding="integer", features=features)} if features else {}


def _scaled(freq: str) -> Calendar:
    return Calendar.for_frequency(Frequency.parse(_UNITS.get(freq, freq)), "scaled")


def _infer_positions(state: State, _: Mapping[str, int]) -> Values:
    """Whether the tables of positions are sinusoids, as published, or were trained."""
    import torch

    from foretell.models.layers.embedding import sinusoids

    learned = any(
        key.endswith(_POSITIONS)
        and table.ndim == 3
        and not torch.allclose(table[0].float(), sinusoids(*table.shape[1:]), atol=1e-3)
        for key, table in state.items()
    )
    return {"positions": "learned" if learned else "sinusoidal"}


def _infer_transformer(state: State, sizes: Mapping[str, int]) -> Values:
    if _infer_positions(state, sizes)["positions"] == "learned":
        raise ImporterError("its positions are not the sinusoids of the published code")
    return _infer_calendar(state, sizes)


def _check_frequency(arguments: Arguments, *_: object) -> None:
    freq, calendar = arguments.get("freq"), arguments.get("calendar")
    if freq is None or calendar is None or freq.value not in _UNITS:
        return
    wanted, found = len(_scaled(freq.value).features), len(calendar.value.features)
    if calendar.value.encoding == "scaled" and wanted != found:
        raise ImporterError(
            f"contradictions: freq {freq.value} by {freq.provenance} has {wanted} calendar "
            f"features, the file has {found}"
        )


def _add_calendar(arguments: Arguments, *_: object) -> None:
    """The calendar features that were tokens: no weight depends on them."""
    if not {"marks", "embed", "freq"} <= arguments.keys() or not arguments["marks"].value:
        return
    embed, freq = arguments["embed"], arguments["freq"]
    if embed.value != "timeF":
        raise ImporterError(
            f"embed {embed.value} by {embed.provenance}: calendar features as tokens are read for "
            "timeF only"
        )
    try:
        arguments["calendar"] = Argument(_scaled(freq.value), freq.provenance)
    except FrequencyError as error:
        raise ImporterError(f"freq {freq.value} by {freq.provenance}: {error}") from None


def configure_patches(values: Values) -> dict[str, Any]:
    """Padding and instance norm of a PatchTST."""
    centre = "last" if values.get("subtract_last") else "mean"
    return {
        "pad_end": values["padding_patch"] == "end",
        "window_norm": centre if values["revin"] else None,
    }


def _cut_positions(state: State, values: Values) -> State:
    """Leave out the table of sinusoids, or keep the trained rows in use."""
    key = f"patch_embedding.{_POSITIONS}"
    if values["positions"] == "learned":
        return {**state, key: state[key][0, : count_patches(values)]}
    return {name: tensor for name, tensor in state.items() if name != key}


def _spread_output(state: State, values: Values) -> State:
    """One row of outputs becomes as many as there are channels; the published code adds it to each.

    The trends of Autoformer start as the channels', and broadcast so.
    """
    if values.get("c_out") != 1 or values["enc_in"] == 1:
        return state
    spread = dict(state)
    for key in state:
        if _OUTPUT.fullmatch(key):
            spread[key] = state[key].repeat(values["enc_in"], *[1] * (state[key].ndim - 1))
    return spread


def _configure_lags(values: Values) -> dict[str, Any]:
    own = {"factor": values["factor"], "lags": values["lags"]}
    return {"attention": {"mechanism": "autocorrelation", **own}}


_EMBEDS = ("timeF", "learned", "fixed")
_AUTOFORMER = Architecture(
    "autoformer",
    tuple(Layout("Autoformer", {"embed": embed}, autoformer_rows(embed)) for embed in _EMBEDS),
    _SERIES
    | {"factor": None, "moving_avg": "moving_average", "lags": None, "calendar": "calendar"},
    infer=_infer_calendar,
    derive=_check_frequency,
    configure=_configure_lags,
    prepare=_spread_output,
)
_TRANSFORMER = Architecture(
    "transformer",
    tuple(Layout("Transformer", {"embed": embed}, transformer_rows(embed)) for embed in _EMBEDS),
    _SERIES | {"calendar": "calendar"},
    infer=_infer_transformer,
    derive=_check_frequency,
    prepare=_spread_output,
)
_PATCHTST = Architecture(
    "patchtst",
    tuple(Layout("PatchTST", {"final_norm": norm}, _patchtst(norm)) for norm in ("batch", "layer")),
    TOKENS
    | {"patch_len": "patch", "stride": "stride", "padding_patch": None, "revin": None}
    | {"subtract_last": None, "final_norm": "final_norm", "positions": "positions"},
    only_with={"subtract_last": "revin"},
    infer=_infer_positions,
    derive=add_patches,
    configure=configure_patches,
    prepare=_cut_positions,
)

_DLINEAR = Architecture(
    "dlinear",
    tuple(Layout("DLinear", {"individual": each}, _dlinear(each)) for each in (0, 1)),
    {"enc_in": "channels", "seq_len": "context", "pred_len": "horizon"}
    | {"moving_avg": "moving_average", "individual": "individual"},
)
_ITRANSFORMER = Architecture(
    "itransformer",
    (Layout("iTransformer", {}, itransformer_rows("projection")),),
    TOKENS | {"marks": None, "embed": None, "freq": None, "calendar": "calendar"},
    only_with={"embed": "marks", "freq": "marks"},
    derive=_add_calendar,
)

_PATCHES: Mapping[str, Value] = {"padding_patch": "end", "revin": 1, "subtract_last": 0}


def _halve_label(values: Values) -> Mapping[str, Value]:
    """TFB starts the decoder with half of the history, or all of a single channel's forecast."""
    if values.get("enc_in") == 1:
        return {"label_len": values["pred_len"]} if "pred_len" in values else {}
    return {"label_len": values["seq_len"] // 2} if "seq_len" in values else {}


# Without a length, an inverse FFT loses a lag of an odd one: the lags are `even`.
CODE_BASES = (
    CodeBase(
        "tslib",
        "the Time-Series-Library",
        (_AUTOFORMER, _DLINEAR, _ITRANSFORMER, _PATCHTST, _TRANSFORMER),
        options=OPTIONS
        | {
            "task_name": Option(
                one_of("long_term_forecast", "short_term_forecast", "zero_shot_forecast"),
                "the task",
                asked=False,
            )
        },
        defaults=DEFAULTS,
        constants={"lags": "even", **_PATCHES},
        usual={"stride": 8},
        setting=SETTING,
    ),
    CodeBase(
        "autoformer",
        "thuml/Autoformer",
        (_AUTOFORMER, _TRANSFORMER),
        options=OPTIONS,
        defaults=DEFAULTS,
        constants={"lags": "all"},
        setting=SETTING,
    ),
    CodeBase(
        "tfb",
        "TFB",
        (_AUTOFORMER, _PATCHTST, _TRANSFORMER),
        options=OPTIONS,
        aliases={"horizon": "pred_len"},
        defaults={"n_heads": 8, "factor": 1.0, "moving_avg": 25, "activation": "gelu", "stride": 8},
        constants={"lags": "even", **_PATCHES},
        fix=_halve_label,
        target_last=False,
    ),
)
