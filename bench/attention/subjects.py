"""The models that are compared: two architectures with each mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.models.attending import AttendingConfig
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site
from foretell.models.attention.notation import read_notation
from foretell.models.forecaster import ARCHITECTURES

# What others are compared with, and what stands where another cannot be.
REFERENCE = "softmax"
ARCHITECTURE_NAMES = ("transformer", "patchtst")
HEADS = 4
CONTEXTS: Mapping[str, int] = {"transformer": 96, "patchtst": 336}
HORIZON = 96
SIZES: dict[str, Any] = {
    "d_model": 32,
    "heads": HEADS,
    "d_ff": 64,
    "encoder_layers": 2,
    "dropout": 0.0,
}
# Whatever the defaults become: what was measured before can be compared.
RECIPE: dict[str, Any] = {"loss": "mse", "learning_rate": 2e-3, "calendar": "all"}
_MIXED = ("local:1,stride:1,global:2", "local+global")


def names() -> list[str]:
    """All that are compared, as `--attention` takes them; the reference first."""
    single = [name for name, config in MECHANISMS.items() if not config.made_of_others]
    return [REFERENCE, *(name for name in single if name != REFERENCE), *_MIXED]


def settings(architecture: str, name: str, **sizes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A config's fields with a mechanism wherever it may be, and the reference elsewhere.

    Args:
        architecture: One whose layers attend.
        name: Of the mechanism, as `--attention` takes it.
        sizes: The other fields.

    Raises:
        ValueError: it may be nowhere.
    """
    (wanted,) = (MECHANISMS.read(fields) for fields in read_notation(name))
    usual = MECHANISMS.read(REFERENCE)
    config = ARCHITECTURES.read({"architecture": architecture, **sizes})
    assert isinstance(config, AttendingConfig)
    chosen = [wanted if may_be(wanted, site) else usual for _, site in config.sites().values()]
    if wanted not in chosen:
        raise ValueError(f"attention: {name} may be nowhere in a {architecture}")
    attention = [one.model_dump(mode="json") for one in chosen]
    given = {**sizes, "window_norm": config.window_norm}
    return {"architecture": architecture, **given, "attention": attention}


def may_be(mechanism: MechanismConfig, site: Site) -> bool:
    """Whether a mechanism may be at a place."""
    try:
        mechanism.check(site)
    except ValueError:
        return False
    return True
