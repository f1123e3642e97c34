"""PatchTST of its paper's code, yuqinie98/PatchTST, which grew out of thuml/Autoformer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from foretell.importers.arguments import Option, Value, count, switch
from foretell.importers.code_base import Architecture, CodeBase, State, Values
from foretell.importers.layouts import Layout, Row, rows
from foretell.importers.patches import add_patches
from foretell.importers.time_series_library import (
    DEFAULTS,
    OPTIONS,
    SETTING,
    TOKENS,
    configure_patches,
)

_SCALE = "sdp_attn.scale"
_BRANCH = """
backbone.W_pos    positions           patches d_model
backbone.W_P.*    patch_projection.*  d_model patch_len
"""
_AFFINE = """
revin_layer.affine_weight  window_norm.weight  enc_in
revin_layer.affine_bias    window_norm.bias    enc_in
"""
_HEADS = (
    "head.linear.*            heads.0.*         pred_len flattened",
    "head.linears.{enc_in}.*  heads.{enc_in}.*  pred_len flattened",
)
_LAYER = f"""
self_attn.W_Q.*       attention.query.*        d_model d_model
self_attn.W_K.*       attention.key.*          d_model d_model
self_attn.W_V.*       attention.value.*        d_model d_model
self_attn.to_out.0.*  attention.out.*          d_model d_model
self_attn.{_SCALE}    -
ff.0.*                feed_forward.expand.*    d_ff d_model
ff.3.*                feed_forward.contract.*  d_model d_ff
"""
_NORMS = {
    "batch": """
norm_attn.1.**  attention_norm.norm.**     d_model
norm_ffn.1.**   feed_forward_norm.norm.**  d_model
""",
    "layer": """
norm_attn.*  attention_norm.*     d_model
norm_ffn.*   feed_forward_norm.*  d_model
""",
}


def plain_rows(norm: str) -> tuple[Row, ...]:
    """The keys of one network with one head, by the norm in its layers; none of RevIN."""
    return _layout(norm, decomposition=0, individual=0, affine=0).rows


def _layout(norm: str, decomposition: int, individual: int, affine: int) -> Layout:
    found: list[Row] = []
    for i, branch in enumerate(("model_res", "model_trend") if decomposition else ("model",)):
        ours = f"branches.{i}."
        layer = f"{ours}layers.{{e_layers}}."
        found += rows(_BRANCH + _HEADS[individual], f"{branch}.", ours)
        if affine:
            found += rows(_AFFINE, f"{branch}.", ours if decomposition else "")
        found += rows(
            _LAYER + _NORMS[norm], f"{branch}.backbone.encoder.layers.{{e_layers}}.", layer
        )
    told: dict[str, Value] = {
        "norm": norm,
        "decomposition": decomposition,
        "individual": individual,
    }
    # Trained parameters of the instance norm mean that there is one.
    told |= {"affine": 1, "revin": 1} if affine else {"affine": 0}
    return Layout("PatchTST of its paper's code", told, tuple(found))


def _scales(state: State) -> dict[str, float]:
    """The factors stored next to the attentions, by what their keys begin with."""
    return {
        key.removesuffix(_SCALE): float(tensor)
        for key, tensor in state.items()
        if key.endswith(f".{_SCALE}") and tensor.numel() == 1
    }


def _infer_heads(state: State, sizes: Mapping[str, int]) -> Values:
    """The number of heads for which every stored factor is the usual `head width ** -0.5`."""
    scales, d_model = set(_scales(state).values()), sizes.get("d_model")
    if len(scales) != 1 or d_model is None or min(scales) <= 0:
        return {}
    width = round(scales.pop() ** -2, 3)
    if not width.is_integer() or d_model % width:
        return {}
    return {"n_heads": d_model // int(width)}


def _fold_scales(state: State, values: Values) -> State:
    """Scale queries where a trained factor stands in for `head width ** -0.5`."""
    usual, folded = (values["d_model"] // values["n_heads"]) ** -0.5, dict(state)
    for start, scale in _scales(state).items():
        # A float32 has no more digits of the usual factor.
        if not math.isclose(scale, usual, rel_tol=1e-6):
            for key in {f"{start}W_Q.weight", f"{start}W_Q.bias"} & state.keys():
                folded[key] = (state[key].double() * (scale / usual)).float()
    return folded


def _configure(values: Values) -> dict[str, Any]:
    return configure_patches(values) | {
        "patch_bias": True,
        "positions": "learned",
        "final_norm": None,
        "attention": "residual-softmax",
        "affine": bool(values["affine"]),
        "individual": bool(values["individual"]),
        "decomposition": values["kernel_size"] if values["decomposition"] else None,
        "attention_dropout": 0.0,
        "head_dropout": 0.0,
    }


_PATCHTST = Architecture(
    "patchtst",
    tuple(itertools.starmap(_layout, itertools.product(("batch", "layer"), *[(0, 1)] * 3))),
    TOKENS
    | {"patch_len": "patch", "stride": "stride", "padding_patch": None, "revin": None}
    | {"affine": None, "subtract_last": None, "individual": None, "decomposition": None}
    | {"kernel_size": None, "norm": "norm"},
    only_with={"subtract_last": "revin", "kernel_size": "decomposition"},
    infer=_infer_heads,
    derive=add_patches,
    configure=_configure,
    prepare=_fold_scales,
)

CODE_BASES = (
    CodeBase(
        "patchtst",
        "yuqinie98/PatchTST",
        (_PATCHTST,),
        options=OPTIONS
        | {
            "affine": Option(switch, "1 if that has trained parameters, else 0"),
            "decomposition": Option(switch, "1 with a network each for trend and rest, else 0"),
            "kernel_size": Option(count, "steps of the decomposition's moving average"),
        },
        # Its argument of this name is not passed on.
        constants={"activation": "gelu"},
        defaults=DEFAULTS
        | {
            "stride": 8,
            "padding_patch": "end",
            "revin": 1,
            "affine": 0,
            "subtract_last": 0,
            "decomposition": 0,
            "individual": 0,
            "kernel_size": 25,
        },
        setting=SETTING,
    ),
)
