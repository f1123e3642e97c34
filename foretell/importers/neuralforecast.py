"""Models of NeuralForecast, as `nf.save` leaves them (Nixtla/neuralforecast).

Those of one series know no series by name: what is adopted forecasts any series of their frequency.
Scalers of each series or window, and RevIN within them, are norms of windows
(`foretell.models.layers.window_norms`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from foretell.importers import patchtst, tslib
from foretell.importers.arguments import Argument, Values, with_provenance
from foretell.importers.errors import ImporterError, explained
from foretell.importers.keys import KeyMap, Row, load_weights, rows
from foretell.importers.neuralforecast_folder import CONFIGURATION, Member, read_folder
from foretell.importers.neuralforecast_losses import (
    IMPLICIT_ROWS,
    LossSpec,
    implicit_parameters,
    read_loss,
)
from foretell.importers.saved import Request, SavedModel
from foretell.models.architectures.patchtst import PatchEncoder, PatchTST
from foretell.models.forecaster import ARCHITECTURES, Forecaster
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import EncoderLayer
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

_SCALERS = {None: None, "identity": None, "revin": "decoupled"}
_SCALERS |= {name: name for name in ("standard", "robust", "minmax", "minmax1", "invariant")}
# Of each series, of which the rows that a model reads are all there is here; norms that are called
# local have their names.
_LOCAL = ("standard", "robust", "robust-iqr", "minmax")
# What they keep next to the weights.
_LOSSES = ("loss.", "valid_loss.")
_EXOGENOUS = ("futr_exog_list", "hist_exog_list", "stat_exog_list", "cat_exog_list")


class Family(NamedTuple):
    """A class of theirs.

    Attributes:
        architecture: What it is here.
        rows: Its keys, those of norms of windows apart.
        output: Part of the keys of the maps whose rows are the outputs of the network: of each step
            all parameters.
        fields: Its arguments, and our field that takes each as it stands; None where `configure`
            or `inner_norm` reads it.
        configure: Fields that no argument gives as it stands.
        inner_norm: The norm of the windows that it has itself, within the scaler's.
        several: Whether it reads several series together.
        finish: What its weights need to mean the same here.
    """

    architecture: str
    rows: list[Row]
    output: str
    fields: Mapping[str, str | None]
    configure: Callable[[Values], dict[str, Any]] = lambda _: {}
    inner_norm: Callable[[Values], str | None] = lambda _: None
    several: bool = False
    finish: Callable[[Forecaster, Values], None] = lambda *_: None


def read(request: Request) -> SavedModel:
    """Read a model of a folder that `nf.save` wrote.

    Raises:
        ImporterError: it cannot be adopted; the message says why, or lists them to choose from.
    """
    found = read_folder(request.file, request.member)
    try:
        return _read(found, request.arguments.get("levels"))
    except (TypeError, ValueError) as error:
        raise ImporterError(f"{found.file}: {explained(error)}") from None


def _read(found: Member, levels: str | None) -> SavedModel:
    family = FAMILIES.get(found.kind)
    if family is None:
        raise ImporterError(f"a {found.kind}; adopted are {', '.join(FAMILIES)} of NeuralForecast")
    _check_served(found)
    loss = read_loss(found, several=family.several, levels=levels)
    values = _values(found, family)
    local, scaler = found.settings.get("local_scaler_type"), _SCALERS[values["scaler_type"]]
    if local is not None:
        _check_local(local, values["scaler_type"], loss)
        scaler = f"local-{local}"
    inner = family.inner_norm(values)
    if loss.head not in (None, "quantiles") and inner is not None:
        # It is undone on the outputs of the network, and not on what is computed from them.
        scaler = scaler or "identity"
    fields = _fields(values, family) | {
        "window_norm": "+".join(name for name in (scaler, inner) if name) or None,
        "head": loss.head,
        "levels": loss.levels,
    }
    model = ARCHITECTURES[family.architecture].model_validate(fields).build()
    channels = model.config.channels
    state, keys = _prepare(found, family, loss, channels), family.rows + _norm_rows(scaler, inner)
    arguments = with_provenance({**values, "loss": loss.title}, found.file.name)
    if loss.chosen is not None and loss.levels is not None:
        state |= implicit_parameters(found, loss.levels)
        keys += IMPLICIT_ROWS
        arguments["levels"] = loss.chosen
    if local is not None:
        # What the library scales by depends on what it is given; this is to be seen.
        arguments["local_scaler_type"] = Argument(f"{local}, of the rows it reads", CONFIGURATION)
    load_weights(model, KeyMap(f"{found.kind} of NeuralForecast", keys), state)
    family.finish(model, values)
    names = _names(found.settings, channels, several=family.several)
    return SavedModel(model.eval(), arguments, names, _frequency(found.settings), unscaled=True)


def _check_served(found: Member) -> None:
    """Refuse what a forecast of a window alone does not have."""
    arguments = found.arguments
    for name in _EXOGENOUS:
        if arguments.get(name):
            raise ImporterError(
                f"{name} {', '.join(map(str, arguments[name]))}: models with exogenous columns are "
                "not served; train it without them"
            )
    if arguments.get("exclude_insample_y"):
        raise ImporterError("exclude_insample_y: it does not read the series")
    if arguments.get("scaler_type") not in _SCALERS:
        known = ", ".join(filter(None, _SCALERS))
        raise ImporterError(f"scaler_type {arguments.get('scaler_type')}: expected one of {known}")


def _check_local(local: str, scaler: str | None, loss: LossSpec) -> None:
    """Refuse a `local_scaler_type` without a norm here, or with none among what the model has."""
    place = f"local_scaler_type {local}"
    if local not in _LOCAL:
        raise ImporterError(f"{place}: adopted are {', '.join(_LOCAL)}; train with one of these")
    if _SCALERS[scaler] is not None:
        raise ImporterError(
            f"{place} around scaler_type {scaler}: one of the two is served; train with one"
        )
    if loss.head is not None and loss.levels is None:
        raise ImporterError(
            f"{place} around a distribution: the library undoes it on samples alone; train with "
            "scaler_type, which is undone on the distribution"
        )


def _values(found: Member, family: Family) -> dict[str, Any]:
    """The arguments that the model depends on."""
    names = ["h", "input_size", *family.fields, "scaler_type"]
    if missing := [name for name in names if name not in found.arguments]:
        raise ImporterError(f"its header lacks {', '.join(missing)}")
    return {name: found.arguments[name] for name in names}


def _prepare(found: Member, family: Family, loss: LossSpec, channels: int) -> dict[str, Tensor]:
    """The weights under their keys, with parameters and quantiles in our order."""
    state = {}
    for key, each in found.state.items():
        if key.startswith(_LOSSES):
            continue
        if key.startswith("scaler."):
            # One scale and shift for all channels.
            each = each.flatten().expand(channels).contiguous()
        elif family.output in key:
            each = _by_parameter(each, loss.order)
        state[key] = each
    return state


def _by_parameter(rows: Tensor, order: Sequence[int]) -> Tensor:
    """Rows of all parameters a step as those of all steps a parameter."""
    if len(rows) % len(order):
        # Of another size: `load_weights` refuses its key.
        return rows
    steps = rows.reshape(-1, len(order), *rows.shape[1:])[:, list(order)]
    return steps.transpose(0, 1).reshape(rows.shape)


def _fields(values: Values, family: Family) -> dict[str, Any]:
    """Our configuration, its norm of windows apart."""
    return {
        "channels": values["n_series"] if family.several else 1,
        "horizon": values["h"],
        # As the library has it: three horizons where none is given.
        "context": values["input_size"] if values["input_size"] > 0 else 3 * values["h"],
        **{ours: values[name] for name, ours in family.fields.items() if ours is not None},
        **family.configure(values),
    }


def _names(settings: Mapping[str, Any], channels: int, *, several: bool) -> Argument | None:
    """The ids of the series that are read together, if they were saved, or the column of all."""
    names: tuple[str, ...] = (str(settings.get("target_col")),)
    if several:
        found = settings.get("uids")
        while isinstance(found, Mapping) and "values" not in found:
            found = found.get("data")
        names = tuple(map(str, found["values"])) if isinstance(found, Mapping) else ()
    return Argument(names, CONFIGURATION) if len(names) == channels else None


def _frequency(settings: Mapping[str, Any]) -> Argument | None:
    """That of the folder; None where it is a number of steps, or a word of other libraries."""
    try:
        return Argument(str(Frequency.parse(str(settings.get("freq")))), CONFIGURATION)
    except FrequencyError:
        return None


def _norm_rows(scaler: str | None, inner: str | None) -> list[Row]:
    """The trained parameters of norms of windows."""
    outer_name = "window_norm.outer." if inner else "window_norm."
    inner_name = "window_norm.inner." if scaler else "window_norm."
    return rows(
        f"""
        scaler.revin_*             {outer_name}*
        model.revin_layer.affine_* {inner_name}*
        """
    )


_TOKENS: dict[str, str | None] = {"hidden_size": "d_model", "dropout": "dropout"}
_TOKENS |= {"encoder_layers": "encoder_layers"}
_STEPS: dict[str, str | None] = _TOKENS | {
    "n_head": "heads",
    "conv_hidden_size": "d_ff",
    "decoder_layers": "decoder_layers",
    "activation": "activation",
    "decoder_input_size_multiplier": None,
}


def _label(values: Values) -> int:
    label: float = values["input_size"] * values["decoder_input_size_multiplier"]
    return math.ceil(label)


def _configure_patches(values: Values) -> dict[str, Any]:
    return {
        "patch": min(values["patch_len"], values["input_size"] + values["stride"]),
        "pad_end": True,
        "patch_bias": True,
        "positions": "learned",
        "norm": "batch",
        "final_norm": None,
        "projection_dropout": values["dropout"],
        "attention": "residual-softmax" if values["res_attention"] else "softmax",
        "affine": values["revin"] and values["revin_affine"],
    }


def _patch_norm(values: Values) -> str | None:
    if not values["revin"]:
        return None
    return "last" if values["revin_subtract_last"] else "mean"


def _shift_norms(model: Forecaster, values: Values) -> None:
    """Make norms before attention and feed-forward network, if it has them, those after.

    A layer of theirs normalises first, and its residuals start from what is normalised. So each
    norm can as well be the last of what comes before it: the first one joins the map of the
    patches, and nothing is left at the end.
    """
    if not values["batch_normalization"]:
        return
    encoder = cast("PatchEncoder", cast("PatchTST", model).branches[0])
    layers = [cast("EncoderLayer", layer) for layer in encoder.layers]
    norms = [norm for layer in layers for norm in (layer.attention_norm, layer.feed_forward_norm)]
    first = cast("TokenBatchNorm", norms[0]).norm
    last = TokenBatchNorm(encoder.config.d_model)
    with torch.no_grad():
        last.norm.weight.fill_(math.sqrt(1 + last.norm.eps))
        variance, mean = cast("Tensor", first.running_var), first.running_mean
        scale = first.weight.double() / torch.sqrt(variance.double() + first.eps)
        projection = encoder.patch_projection
        shifted = projection.bias.double() - cast("Tensor", mean).double()
        projection.bias.copy_(shifted * scale + first.bias.double())
        projection.weight.copy_(projection.weight.double() * scale[:, None])
        encoder.positions.mul_(scale)
    for i, layer in enumerate(layers):
        layer.attention_norm, layer.feed_forward_norm = [*norms, last][2 * i + 1 : 2 * i + 3]


FAMILIES: Mapping[str, Family] = {
    "PatchTST": Family(
        "patchtst",
        patchtst.branch_rows("batch", "model.", "branches.0."),
        "head.linear.",
        _TOKENS
        | {"n_heads": "heads", "linear_hidden_size": "d_ff", "activation": "activation"}
        | {"attn_dropout": "attention_dropout", "head_dropout": "head_dropout"}
        | {"patch_len": None, "stride": "stride", "res_attention": None}
        | {"batch_normalization": None, "revin": None, "revin_affine": None}
        | {"revin_subtract_last": None},
        configure=_configure_patches,
        inner_norm=_patch_norm,
        finish=_shift_norms,
    ),
    "DLinear": Family(
        "dlinear",
        rows("linear_season.* seasonal.*\nlinear_trend.* trend.*"),
        "linear_",
        {"moving_avg_window": "moving_average"},
    ),
    "iTransformer": Family(
        "itransformer",
        tslib.itransformer_rows("projector"),
        "projector.",
        {"n_series": None, "hidden_size": "d_model", "n_heads": "heads"}
        | {"e_layers": "encoder_layers", "d_ff": "d_ff", "dropout": "dropout", "use_norm": None},
        inner_norm=lambda values: "mean" if values["use_norm"] else None,
        several=True,
    ),
    "VanillaTransformer": Family(
        "transformer",
        tslib.transformer_rows("timeF"),
        ".projection.",
        _STEPS,
        # Its mask is never made.
        configure=lambda values: {"label": _label(values), "causal": False},
    ),
    "Autoformer": Family(
        "autoformer",
        tslib.autoformer_rows("timeF"),
        ".projection.",
        _STEPS | {"factor": None, "MovingAvg_window": "moving_average"},
        # Without a length, its inverse FFT loses a lag of an odd one.
        configure=lambda values: (
            {"label": _label(values)}
            | tslib.with_lags({"factor": values["factor"], "lags": "even"})
        ),
    ),
}
