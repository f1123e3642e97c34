"""The Time-Series-Library, and code with the same keys: thuml/Autoformer and TFB."""

from __future__ import annotations

import re
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
from foretell.importers.keys import KeyMap
from foretell.importers.tslib_keys import (
    GLOBAL_TOKENS,
    LINEAR_CALENDAR,
    POSITIONS,
    TABLES,
    autoformer_rows,
    dlinear_rows,
    itransformer_rows,
    patchtst_rows,
    timexer_rows,
    transformer_rows,
)
from foretell.models.layers.embedding import sinusoids
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

DEFAULTS = {"seq_len": 96, "label_len": 48, "pred_len": 96, "features": "M", "target": "OT"}
DEFAULTS |= {"n_heads": 8, "factor": 1.0, "moving_avg": 25, "activation": "gelu", "use_norm": 1}
TOKENS: dict[str, str | None] = {"enc_in": "channels", "seq_len": "context", "pred_len": "horizon"}
TOKENS |= {"d_model": "d_model", "n_heads": "heads", "d_ff": "d_ff", "e_layers": "encoder_layers"}
TOKENS |= {"dropout": "dropout", "activation": "activation"}
_SERIES = TOKENS | {"label_len": "label", "d_layers": "decoder_layers", "embed": "embedding"}
_OUTPUT = re.compile(r"decoder\.(layers\.\d+\.)?projection\.(weight|bias)")
_UNITS = {"s": "s", "t": "min", "h": "h", "d": "D", "b": "B", "w": "W", "m": "M"}


def _embed(state: State) -> str:
    if has(state, f".{LINEAR_CALENDAR}"):
        return "timeF"
    return "fixed" if has(state, "_embed.emb.") else "learned"


def _final_norm(state: State) -> str:
    return "batch" if has(state, "encoder.norm.1.") else "layer"


def _calendar(state: State) -> Calendar | None:
    """The calendar features, from the width of a linear embedding or the names of tables."""
    linear = state.get(f"enc_embedding.{LINEAR_CALENDAR}")
    if linear is not None:
        calendars = {len(each.features): each for each in map(_scaled, _UNITS)}
        if linear.shape[-1] not in calendars:
            raise ImporterError(f"it reads {linear.shape[-1]} calendar features; expected 1 to 6")
        return calendars[linear.shape[-1]]
    tables = {name for name in TABLES if has(state, f".temporal_embedding.{name}_embed.")}
    features = tuple(feature for name, feature in TABLES.items() if name in tables)
    return Calendar(encoding="integer", features=features) if features else None


def _scaled(freq: str) -> Calendar:
    return Calendar.for_frequency(Frequency.parse(_UNITS.get(freq, freq)), "scaled")


def _are_learned(state: State) -> bool:
    """Whether the tables of positions were trained, since they are not sinusoids."""
    return any(
        key.endswith(POSITIONS)
        and table.ndim == 3
        and not torch.allclose(table[0].float(), sinusoids(*table.shape[1:]), atol=1e-3)
        for key, table in state.items()
    )


def _of_encoder(state: State, layers: str = "encoder.attn_layers") -> dict[str, Any]:
    contract = f"{layers}.0.conv2.weight"
    found = sizes(state, {"d_model": (contract, 0), "d_ff": (contract, 1)})
    return found | {"e_layers": numbers(state, f"{layers}.#.")}


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


def _of_timexer(state: State, values: Values) -> Values:
    if _are_learned(state):
        raise ImporterError("its positions are not the sinusoids of the published code")
    places = {
        "patch_len": ("en_embedding.value_embedding.weight", 1),
        "seq_len": ("ex_embedding.value_embedding.weight", 1),
        "pred_len": ("head.linear.weight", 0),
        "series": (GLOBAL_TOKENS, 1),
    }
    found = _of_encoder(state, "encoder.layers") | sizes(state, places)
    series = found.pop("series")
    # With features MS the target alone has a global token, and no weight depends on the others.
    if series > 1:
        found |= {"enc_in": series, "features": "M"}
    elif values.get("features") == "M":
        found["enc_in"] = 1
    return found


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


def _with_exogenous(values: Values) -> dict[str, Any]:
    """The rows and channels that a TimeXer reads, its calendar features and its norm."""
    return {
        "unpatched": "newest",
        "exogenous": "all" if values["features"] == "M" else "others",
        "window_norm": "mean" if values["use_norm"] else None,
        **_with_marks({**values, "marks": 1}),
    }


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
    key = f"patch_embedding.{POSITIONS}"
    if values["positions"] == "learned":
        return {**state, key: state[key][0, : count_patches(values)]}
    return {name: tensor for name, tensor in state.items() if name != key}


def _cut_global_tokens(state: State, values: Values) -> State:
    """The global tokens without the axes of batch and time."""
    tokens = state[GLOBAL_TOKENS].flatten(0, -2)
    if values["features"] == "M" and len(tokens) != values["enc_in"]:
        raise ImporterError(
            f"contradictions: features M of {values['enc_in']} channels, but the file forecasts "
            f"{len(tokens)}; give features MS if it reads the others"
        )
    return {**state, GLOBAL_TOKENS: tokens}


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
    lambda state: KeyMap("PatchTST", patchtst_rows(_final_norm(state))),
    _of_patchtst,
    TOKENS
    | {"patch_len": "patch", "stride": "stride", "padding_patch": None, "revin": None}
    | {"subtract_last": None, "final_norm": "final_norm", "positions": "positions"},
    with_patches,
    _cut_positions,
)
_DLINEAR = Architecture(
    lambda state: KeyMap("DLinear", dlinear_rows(individual=has(state, "Linear_Seasonal.0."))),
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
_TIMEXER = Architecture(
    lambda _: KeyMap("TimeXer", timexer_rows()),
    _of_timexer,
    TOKENS
    | {"patch_len": "patch", "use_norm": None, "features": None, "embed": None, "freq": None},
    _with_exogenous,
    _cut_global_tokens,
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
            "timexer": _TIMEXER,
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
