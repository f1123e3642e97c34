"""Comparisons with a device that computes nothing.

A run on the stand-in is complete; only its numbers are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.export import comparison
from foretell.service.engine import selftest
from foretell.verification import device

Outputs = dict[str, NDArray[np.generic]]


def ignore() -> None:
    """Let all later comparisons of numbers succeed."""
    for module in (selftest, comparison, device):
        module.relative_error = _no_error  # type: ignore[attr-defined]
    comparison.attention_error = _no_difference
    comparison.choices_differ = _same_choices
    comparison.headroom = _clear
    comparison.margin_error = _no_margin_error


def _no_error(found: NDArray[np.generic], *_: object) -> NDArray[np.float64]:
    return np.zeros(len(found))


def _no_difference(_: object, found: Outputs, __: Outputs) -> NDArray[np.float64]:
    return np.zeros(len(found["forecast"]))


def _same_choices(_: Sequence[object], found: Outputs, __: Outputs) -> NDArray[np.bool_]:
    return np.zeros(len(found["forecast"]), np.bool_)


def _clear(_: Sequence[object], found: Outputs, *__: object) -> NDArray[np.float64]:
    return np.full(len(found["forecast"]), np.inf)


def _no_margin_error(_: Sequence[object], found: Outputs, __: Outputs) -> NDArray[np.float64]:
    return np.zeros(len(found["forecast"]))
