"""Sites of mechanisms, in models small enough for every test."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from foretell.bundle.attention import Axis
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site
from foretell.models.attention.softmax import MultiHeadAttention

D_MODEL, HEADS, LENGTH, FUTURE = 8, 2, 24, 14
_STEPS = Axis(length=LENGTH, start=-LENGTH)
_DECODER = Axis(length=FUTURE, start=-8)
_PATCHES = Axis(of="patches", length=5, start=-LENGTH, stride=4, width=8, end=0)
_CHANNELS = Axis(of="channels", length=7)

PLACES = {
    "encoder": Site(D_MODEL, HEADS, _STEPS, _STEPS),
    "decoder": Site(D_MODEL, HEADS, _DECODER, _DECODER, causal=True, chained=False),
    "cross": Site(D_MODEL, HEADS, _DECODER, _STEPS, chained=False),
    "patches": Site(D_MODEL, HEADS, _PATCHES, _PATCHES, channels=3),
    "channels": Site(D_MODEL, HEADS, _CHANNELS, _CHANNELS),
    "group": Site(D_MODEL, 3, _STEPS, _STEPS, chained=False, width=6),
}
# Settings of mechanisms that need some.
OTHERS = {
    "mixture": {
        "groups": [
            {"heads": 1, "attention": "softmax"},
            {"heads": 1, "attention": {"mechanism": "linear"}},
        ]
    },
    "union": {"patterns": ["local", {"mechanism": "stride", "dilation": 5}]},
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def default(name: str) -> MechanismConfig:
    """A mechanism with default settings."""
    return MECHANISMS.read({"mechanism": name, **OTHERS.get(name, {})})


def placed() -> Iterator[tuple[str, str]]:
    """Every mechanism with every place that does not refuse it."""
    for name in MECHANISMS:
        for place, site in PLACES.items():
            if allowed(name, site):
                yield name, place


def allowed(name: str, site: Site) -> bool:
    """Whether a mechanism may be at a place."""
    try:
        default(name).check(site)
    except ValueError:
        return False
    return True


def site_of(length: int = LENGTH, **others: Any) -> Site:
    """A site where `length` steps read each other; `others` are its other fields."""
    axis = Axis(length=length, start=-length)
    return Site(**({"d_model": D_MODEL, "heads": HEADS, "query": axis, "key": axis} | others))


def made(settings: dict[str, Any], site: Site) -> nn.Module:
    """A mechanism of a seed, in float64 and evaluation."""
    torch.manual_seed(0)
    return MECHANISMS.read(settings).build(site).double().eval()


def multi_head(
    d_model: int,
    heads: int,
    *,
    residual: bool = False,
    without: Container[str] = (),
    **others: Any,
) -> MultiHeadAttention:
    """Softmax attention without the biases of some projections; `others` are of the site."""
    site = site_of(d_model=d_model, heads=heads, **others)
    query, key, value = (name not in without for name in ("query", "key", "value"))
    return MultiHeadAttention(site, (query, key, value), residual=residual)
