"""Models that NeuralForecast (Nixtla/neuralforecast) saved with `nf.save`.

Univariate models do not depend on names of series, so they forecast any series of their frequency.
Scalers of series or windows, and RevIN within them, become window norms
(`foretell.models.layers.window_norms`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from foretell.bundle.covariates import CovariateKind, Covariates
from foretell.importers import patchtst, tslib_keys
from foretell.importers.arguments import Argument, Values, with_provenance
from foretell.importers.errors import ImporterError, explained
from foretell.importers.keys import KeyMap, Row, load_weights, rows
from foretell.importers.neuralforecast_exogenous import (
    LISTS,
    of_series,
    read_covariates,
    with_categories,
)
from foretell.importers.neuralforecast_folder import CONFIGURATION, Member, read_folder
from foretell.importers.neuralforecast_losses import (
    IMPLICIT_ROWS,
    LossSpec,
    implicit_parameters,
    read_loss,
)
from foretell.importers.saved import Request, SavedModel
from foretell.importers.tslib import with_lags
from foretell.models.architectures.patchtst import PatchEncoder, PatchTST
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import EncoderLayer
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

_SCALERS = {None: None, "identity": None, "revin": "decoupled"}
_SCALERS |= {name: name for name in ("standard", "robust", "minmax", "minmax1", "invariant")}
# Scalers of each series. Here they scale the rows that the model reads, as norms named `local-…`.
_LOCAL = ("standard", "robust", "robust-iqr", "minmax")
# Prefixes of tensors that are not weights.
_LOSSES = ("loss.", "valid_loss.")
# Prefix of the projection of past covariates, which a model without any may have.
_PAST = "hist_exog_projection."


class Family(NamedTuple):
    """A model class of NeuralForecast.

    Attributes:
        architecture: Name of our architecture.
        rows: Published keys and our names, without those of window norms.
        output: Parts of the keys of the output layers, whose rows have all parameters of each step.
        fields: Arguments, each with the field of our configuration that takes it unchanged; None
            where `configure` or `inner_norm` reads it.
        configure: Returns the other fields of our configuration.
        inner_norm: Returns the window norm of the model itself, within the scaler's.
        several: Whether the model reads several series together.
        finish: Converts loaded weights to the meaning that they have here.
        covariates: Kinds of covariates that it reads, each with the keys of the weights whose last
            columns read them.
    """

    architecture: str
    rows: list[Row]
    output: tuple[str, ...]
    fields: Mapping[str, str | None]
    configure: Callable[[Values], dict[str, Any]] = lambda _: {}
    inner_norm: Callable[[Values], str | None] = lambda _: None
    several: bool = False
    finish: Callable[[Forecaster, Values], None] = lambda *_: None
    covariates: Mapping[CovariateKind, tuple[str, ...]] = {}


def read(request: Request) -> SavedModel:
    """Read a model of a folder that `nf.save` wrote.

    Raises:
        ImporterError: it cannot be imported; the message has the reason, or the models to choose
            from.
    """
    found = read_folder(request.file, request.member)
    try:
        return _read(found, request)
    except (TypeError, ValueError) as error:
        raise ImporterError(f"{found.file}: {explained(error)}") from None


def _read(found: Member, request: Request) -> SavedModel:
    family = FAMILIES.get(found.kind)
    if family is None:
        raise ImporterError(f"a {found.kind}; expected one of {', '.join(FAMILIES)}")
    _check_served(found)
    covariates = read_covariates(found, {name: one.covariates for name, one in FAMILIES.items()})
    loss = read_loss(found, several=family.several, levels=request.arguments.get("levels"))
    values = _values(found, family)
    series = values["n_series"] if family.several else 1
    names = _names(found.settings, series, several=family.several)
    covariates = of_series(covariates, None if names is None else names.value)
    local, scaler = found.settings.get("local_scaler_type"), _SCALERS[values["scaler_type"]]
    if local is not None:
        _check_local(local, values["scaler_type"], loss)
        scaler = f"local-{local}"
    inner = family.inner_norm(values)
    if loss.head not in (None, "quantiles") and inner is not None:
        # The inner norm is undone on the outputs of the network, not on parameters from them.
        scaler = scaler or "identity"
    fields = _fields(values, family, covariates) | {
        "window_norm": "+".join(name for name in (scaler, inner) if name) or None,
        "head": loss.head,
        "levels": loss.levels,
    }
    if covariates.future:
        # The trained parameters of `decoupled` are for the way out.
        fields["covariate_norm"] = "standard" if scaler == "decoupled" else scaler
    model = ARCHITECTURES[family.architecture].model_validate(fields).build()
    channels = model.config.channels
    state = _prepare(found, family, loss, channels, past=bool(covariates.past))
    state = with_categories(state, covariates, family.covariates)
    keys = family.rows + _norm_rows(scaler, inner)
    lists = {name: ", ".join(map(str, found.arguments.get(name) or ())) for name in LISTS.values()}
    shown = {name: columns for name, columns in lists.items() if columns}
    arguments = with_provenance({**values, "loss": loss.title, **shown}, found.file.name)
    if loss.chosen is not None and loss.levels is not None:
        state |= implicit_parameters(found, loss.levels)
        keys += IMPLICIT_ROWS
        arguments["levels"] = loss.chosen
    if local is not None:
        # The library may scale by more rows, so the imported arguments show the difference.
        arguments["local_scaler_type"] = Argument(f"{local}, of the rows it reads", CONFIGURATION)
    load_weights(model, KeyMap(f"{found.kind} of NeuralForecast", keys), state)
    family.finish(model, values)
    past = tuple(each.name for each in covariates.past)
    if past and request.channels is not None:
        raise ImporterError("--channels: hist_exog_list names channels of this model; leave it out")
    if names is not None:
        names = names._replace(value=names.value + past)
    return SavedModel(model.eval(), arguments, names, _frequency(found.settings), unscaled=True)


def _check_served(found: Member) -> None:
    """Refuse models that do not read the series, or scale it in another way."""
    arguments = found.arguments
    if arguments.get("exclude_insample_y"):
        raise ImporterError("exclude_insample_y: it does not read the series; train without it")
    if arguments.get("scaler_type") not in _SCALERS:
        known = ", ".join(filter(None, _SCALERS))
        raise ImporterError(f"scaler_type {arguments.get('scaler_type')}: expected one of {known}")


def _check_local(local: str, scaler: str | None, loss: LossSpec) -> None:
    """Refuse a `local_scaler_type` that has no norm here, or that other settings exclude."""
    place = f"local_scaler_type {local}"
    if local not in _LOCAL:
        raise ImporterError(f"{place}: expected one of {', '.join(_LOCAL)}; train with one of them")
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


def _prepare(
    found: Member, family: Family, loss: LossSpec, channels: int, *, past: bool
) -> dict[str, Tensor]:
    """The weights under their keys, with parameters and quantiles in our order."""
    state = {}
    for key, each in found.state.items():
        if key.startswith(_LOSSES) or (key.startswith(_PAST) and not past):
            continue
        if key.startswith("scaler."):
            # The first scale and shift are those of the series; exogenous columns follow it.
            each = each.flatten()[:1].expand(channels).contiguous()
        elif key == tslib_keys.GLOBAL_TOKENS:
            each = each.flatten(0, 2)
        elif any(part in key for part in family.output):
            each = _by_parameter(each, loss.order)
        state[key] = each
    return state


def _by_parameter(rows: Tensor, order: Sequence[int]) -> Tensor:
    """Reorder rows from `[steps, parameters]` to `[parameters, steps]`."""
    if len(rows) % len(order):
        # The size is wrong; `load_weights` refuses the key.
        return rows
    steps = rows.reshape(-1, len(order), *rows.shape[1:])[:, list(order)]
    return steps.transpose(0, 1).reshape(rows.shape)


def _fields(values: Values, family: Family, covariates: Covariates) -> dict[str, Any]:
    """Our configuration without the window norm."""
    series = values["n_series"] if family.several else 1
    return {
        "channels": series + len(covariates.past),
        "targets": tuple(range(series)) if covariates.past else None,
        "covariates": covariates if covariates != Covariates() else None,
        "horizon": values["h"],
        # The library's default is three horizons.
        "context": values["input_size"] if values["input_size"] > 0 else 3 * values["h"],
        **{ours: values[name] for name, ours in family.fields.items() if ours is not None},
        **family.configure(values),
    }


def _names(settings: Mapping[str, Any], series: int, *, several: bool) -> Argument | None:
    """Names of the series: saved ids of series that are read together, or the target column."""
    names: tuple[str, ...] = (str(settings.get("target_col")),)
    if several:
        found = settings.get("uids")
        while isinstance(found, Mapping) and "values" not in found:
            found = found.get("data")
        names = tuple(map(str, found["values"])) if isinstance(found, Mapping) else ()
    return Argument(names, CONFIGURATION) if len(names) == series else None


def _frequency(settings: Mapping[str, Any]) -> Argument | None:
    """The frequency of the folder; None for a number of steps or an alias of another library."""
    try:
        return Argument(str(Frequency.parse(str(settings.get("freq")))), CONFIGURATION)
    except FrequencyError:
        return None


def _norm_rows(scaler: str | None, inner: str | None) -> list[Row]:
    """Keys of the trained parameters of window norms."""
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
    """Turn norms before attention and feed-forward network into norms after them.

    A layer of the library normalises first, and its residuals start from the normalised values. So
    each norm can end the part before it. The first norm is folded into the projection of the
    patches, and an identity takes the last place.
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


def _tide_rows() -> list[Row]:
    """Keys of a TiDE."""
    block = "lin1.* hidden.*\nlin2.* output.*\nskip.* skip.*\nnorm.* norm.*"
    blocks = {
        "hist_exog_projection.": "past_projection.",
        "futr_exog_projection.": "future_projection.",
        "dense_encoder.{layer}.": "encoder.{layer}.",
        "dense_decoder.{layer}.": "decoder.{layer}.",
        "temporal_decoder.": "temporal_decoder.",
    }
    found = [row for published, ours in blocks.items() for row in rows(block, published, ours)]
    return found + rows("global_skip.* skip.*")


# Keys of the maps of exogenous columns to tokens.
_EMBEDDINGS = tuple(f"{part}_embedding.temporal_embedding.embed.weight" for part in ("enc", "dec"))
FAMILIES: Mapping[str, Family] = {
    "PatchTST": Family(
        "patchtst",
        patchtst.branch_rows("batch", "model.", "branches.0."),
        ("head.linear.",),
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
        ("linear_",),
        {"moving_avg_window": "moving_average"},
    ),
    "iTransformer": Family(
        "itransformer",
        tslib_keys.itransformer_rows("projector"),
        ("projector.",),
        {"n_series": None, "hidden_size": "d_model", "n_heads": "heads"}
        | {"e_layers": "encoder_layers", "d_ff": "d_ff", "dropout": "dropout", "use_norm": None},
        inner_norm=lambda values: "mean" if values["use_norm"] else None,
        several=True,
    ),
    "TimeXer": Family(
        "timexer",
        tslib_keys.timexer_rows(),
        ("head.linear.",),
        {"n_series": None, "patch_len": "patch", "hidden_size": "d_model", "n_heads": "heads"}
        | {"e_layers": "encoder_layers", "d_ff": "d_ff", "dropout": "dropout"}
        | {"use_norm": "target_norm", "stat_exog_list": None},
        configure=lambda values: {
            "exogenous": "all",
            "activation": "relu",
            "static_tokens": bool(values["stat_exog_list"]),
        },
        several=True,
        covariates={"past": (), "static": ()},
    ),
    "VanillaTransformer": Family(
        "transformer",
        tslib_keys.transformer_rows("timeF"),
        (".projection.",),
        _STEPS,
        # The library never makes the mask.
        configure=lambda values: {"label": _label(values), "causal": False},
        covariates={"future": _EMBEDDINGS},
    ),
    "Autoformer": Family(
        "autoformer",
        tslib_keys.autoformer_rows("timeF"),
        (".projection.",),
        _STEPS | {"factor": None, "MovingAvg_window": "moving_average"},
        # Its inverse FFT has no length argument, so it loses a lag of an odd length.
        configure=lambda values: (
            {"label": _label(values)} | with_lags({"factor": values["factor"], "lags": "even"})
        ),
        covariates={"future": _EMBEDDINGS},
    ),
    "TiDE": Family(
        "tide",
        _tide_rows(),
        ("temporal_decoder.lin2.", "temporal_decoder.skip.", "temporal_decoder.norm.", "global_"),
        {"hidden_size": "d_model", "dropout": "dropout", "layernorm": "layer_norm"}
        | {"num_encoder_layers": "encoder_layers", "num_decoder_layers": "decoder_layers"}
        | {"decoder_output_dim": "step_features", "temporal_decoder_dim": "step_width"}
        | {"temporal_width": "projection"},
        configure=lambda values: {"step_norm": values["layernorm"]},
        covariates={
            "future": ("futr_exog_projection.lin1.weight", "futr_exog_projection.skip.weight"),
            "past": (),
            "static": ("dense_encoder.0.lin1.weight", "dense_encoder.0.skip.weight"),
        },
    ),
}
