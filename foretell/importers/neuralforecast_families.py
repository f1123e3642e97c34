"""Model classes of NeuralForecast, and our architectures that they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from foretell.bundle.covariates import CovariateKind
from foretell.importers import patchtst, tslib_keys
from foretell.importers.arguments import Values
from foretell.importers.keys import Row, rows
from foretell.importers.tslib import with_lags
from foretell.models.architectures.patchtst import PatchEncoder, PatchTST
from foretell.models.forecaster import Forecaster
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import EncoderLayer


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
            "unpatched": "newest",
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
