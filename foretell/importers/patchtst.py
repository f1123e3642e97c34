"""PatchTST from the code of its paper, yuqinie98/PatchTST, which is based on thuml/Autoformer."""

from __future__ import annotations

import math
from typing import Any

from foretell.importers.arguments import Values
from foretell.importers.code_base import (
    Architecture,
    CodeBase,
    State,
    has,
    numbers,
    sizes,
    steps_of_patches,
)
from foretell.importers.keys import KeyMap, Row, rows
from foretell.importers.tslib import DEFAULTS, TOKENS, with_patches

_SCALE = "sdp_attn.scale"
_BRANCH = """
    backbone.W_pos  positions
    backbone.W_P.*  patch_projection.*
"""
_AFFINE = """
    revin_layer.affine_weight  window_norm.weight
    revin_layer.affine_bias    window_norm.bias
"""
_LAYER = f"""
    self_attn.W_Q.*       attention.query.*
    self_attn.W_K.*       attention.key.*
    self_attn.W_V.*       attention.value.*
    self_attn.to_out.0.*  attention.out.*
    self_attn.{_SCALE}    -
    ff.0.*                feed_forward.expand.*
    ff.3.*                feed_forward.contract.*
"""
_NORMS = {
    "batch": """
    norm_attn.1.**  attention_norm.norm.**
    norm_ffn.1.**   feed_forward_norm.norm.**
    """,
    "layer": """
    norm_attn.*  attention_norm.*
    norm_ffn.*   feed_forward_norm.*
    """,
}


def branch_rows(norm: str, published: str, ours: str, *, individual: bool = False) -> list[Row]:
    """The keys of one network.

    Args:
        norm: Norm in the layers, `batch` or `layer`.
        published: Prefix of the published keys.
        ours: Prefix of our names.
        individual: Whether each channel has its own head.
    """
    head = (
        "head.linears.{channel}.*  heads.{channel}.*" if individual else "head.linear.*  heads.0.*"
    )
    layer = f"{published}backbone.encoder.layers.{{layer}}.", f"{ours}layers.{{layer}}."
    return rows(_BRANCH + head, published, ours) + rows(_LAYER + _NORMS[norm], *layer)


def _keys(state: State) -> KeyMap:
    form = _form(state)
    found: list[Row] = []
    for i, branch in enumerate(_branches(state)):
        ours = f"branches.{i}."
        found += branch_rows(form["norm"], branch, ours, individual=form["individual"])
        if form["affine"]:
            found += rows(_AFFINE, branch, ours if form["decomposition"] else "")
    return KeyMap("PatchTST of its paper's code", found)


def _branches(state: State) -> tuple[str, ...]:
    return ("model_res.", "model_trend.") if has(state, "model_res.") else ("model.",)


def _form(state: State) -> dict[str, Any]:
    affine = int(has(state, "revin_layer."))
    found = {
        "norm": "batch" if has(state, ".norm_attn.1.") else "layer",
        "decomposition": int(has(state, "model_res.")),
        "individual": int(has(state, "head.linears.")),
        "affine": affine,
    }
    # Trained parameters of the instance norm show that it exists.
    return found | ({"revin": 1} if affine else {})


def _stored(state: State, values: Values) -> Values:
    branch, found = _branches(state)[0], _form(state)
    head = f"{branch}head.linears.0" if found["individual"] else f"{branch}head.linear"
    contract = f"{branch}backbone.encoder.layers.0.ff.3.weight"
    places = {
        "d_model": (contract, 0),
        "d_ff": (contract, 1),
        "patch_len": (f"{branch}backbone.W_P.weight", 1),
        "pred_len": (f"{head}.weight", 0),
        "patches": (f"{branch}backbone.W_pos", 0),
    }
    if found["affine"]:
        places["enc_in"] = (f"{branch}revin_layer.affine_weight", 0)
    found |= sizes(state, places)
    if found["individual"]:
        found["enc_in"] = numbers(state, f"{branch}head.linears.#.")
    found["e_layers"] = numbers(state, f"{branch}backbone.encoder.layers.#.")
    steps = steps_of_patches(found.pop("patches"), {**values, **found})
    return found | _heads(state, found["d_model"]) | steps


def _scales(state: State) -> dict[str, float]:
    """The factors stored next to the attentions, by the prefix of their keys."""
    return {
        key.removesuffix(_SCALE): float(tensor)
        for key, tensor in state.items()
        if key.endswith(f".{_SCALE}") and tensor.numel() == 1
    }


def _heads(state: State, d_model: int) -> dict[str, int]:
    """The number of heads, if every stored factor is the usual `head width ** -0.5` of it."""
    scales = set(_scales(state).values())
    if len(scales) != 1 or min(scales) <= 0:
        return {}
    width = round(scales.pop() ** -2, 3)
    if not width.is_integer() or d_model % width:
        return {}
    return {"n_heads": d_model // int(width)}


def _fold_scales(state: State, values: Values) -> State:
    """Scale the queries if a trained factor replaces `head width ** -0.5`."""
    usual, folded = (values["d_model"] // values["n_heads"]) ** -0.5, dict(state)
    for start, scale in _scales(state).items():
        # The tolerance is the precision of float32.
        if not math.isclose(scale, usual, rel_tol=1e-6):
            for key in {f"{start}W_Q.weight", f"{start}W_Q.bias"} & state.keys():
                folded[key] = (state[key].double() * (scale / usual)).float()
    return folded


def _configure(values: Values) -> dict[str, Any]:
    return with_patches(values) | {
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
    _keys,
    _stored,
    TOKENS
    | {"patch_len": "patch", "stride": "stride", "padding_patch": None, "revin": None}
    | {"affine": None, "subtract_last": None, "individual": None}
    | {"decomposition": None, "kernel_size": None, "norm": "norm"},
    _configure,
    _fold_scales,
)
CODE_BASES = {
    "patchtst": CodeBase(
        "yuqinie98/PatchTST",
        {"patchtst": _PATCHTST},
        DEFAULTS
        | {"stride": 8, "padding_patch": "end", "revin": 1, "affine": 0, "subtract_last": 0}
        | {"decomposition": 0, "individual": 0, "kernel_size": 25},
        # The code does not pass this argument on.
        lambda _: {"activation": "gelu"},
    )
}
