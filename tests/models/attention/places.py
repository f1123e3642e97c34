"""Where a mechanism may be, in models small enough for every test."""

from __future__ import annotations

from collections.abc import Iterator

from bench.attention.subjects import may_be
from foretell.bundle.attention import Axis
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site

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
# Of those that need settings.
OTHERS = {
    "mixture": {
        "groups": [
            {"heads": 1, "attention": "softmax"},
            {"heads": 1, "attention": {"mechanism": "linear"}},
        ]
    },
    "union": {"patterns": ["local", {"mechanism": "stride", "dilation": 5}]},
}


def default(name: str) -> MechanismConfig:
    """A mechanism with the settings of who gives none."""
    return MECHANISMS.read({"mechanism": name, **OTHERS.get(name, {})})


def placed() -> Iterator[tuple[str, str]]:
    """Every mechanism with every place that does not refuse it."""
    for name in MECHANISMS:
        for place, site in PLACES.items():
            if allowed(name, site):
                yield name, place


def allowed(name: str, site: Site) -> bool:
    """Whether a mechanism may be at a place."""
    return may_be(default(name), site)
