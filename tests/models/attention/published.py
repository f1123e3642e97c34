"""Implementations of others, which ours are compared with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from torch import Tensor


def published(name: str) -> ModuleType:
    """A module of a published package; warnings at its import are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def croco(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint of CroCo's attention under our names."""
    found = {}
    for part in ("weight", "bias"):
        split = dict(zip(("query", "key", "value"), weights[f"qkv.{part}"].chunk(3), strict=True))
        found |= {f"{name}.{part}": one for name, one in split.items()}
        found[f"out.{part}"] = weights[f"proj.{part}"]
    return found


def aft(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint of aft-pytorch under our names; its biases may be of a longer sequence."""
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "project": "out", "wbias": "bias"}
    split = (name.partition(".") for name in weights)
    return {
        f"{names[layer]}{dot}{part}": weights[f"{layer}{dot}{part}"] for layer, dot, part in split
    }
