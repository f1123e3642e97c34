"""Formulae by which columns give another in all rows, up to rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
# Fewest rows that are no chance.
_FEWEST = 20
# Largest deviation, in standard deviations of the target; and if rounding explains it.
_NEAR, _NEAR_ROUNDED = 0.01, 0.03
# Standard deviation of rounding errors, in units, with a margin.
_ROUNDED = 0.3
# Relative rounding error of float32, with a margin.
_ROUNDING = 1e-6
# Digits after the point of written numbers.
_DIGITS = 6


def formula_of(target: str, values: Values, inputs: dict[str, Values]) -> str | None:
    """How inputs give a target in all rows, such as `y = 1.8 x + 32`; None if they do not.

    Args:
        target: Name of the target.
        values: `[rows]`, the target; NaN where it is unknown.
        inputs: Each `[rows]`, by name, likewise.
    """
    known = ~np.isnan(np.column_stack([values, *inputs.values()])).any(axis=1)
    values, columns = values[known], [own[known] for own in inputs.values()]
    if len(values) < _FEWEST or not all(np.ptp(each) > 0 for each in (values, *columns)):
        return None
    means = [column.mean() for column in columns]
    centred = np.column_stack([column - mean for column, mean in zip(columns, means, strict=True)])
    scale = centred.std(axis=0)
    weights = np.linalg.lstsq(centred / scale, values - values.mean(), rcond=None)[0] / scale
    rest = values - values.mean() - centred @ weights
    deviation = values.std()
    parts = [abs(weight) * _unit(each) for weight, each in zip(weights, columns, strict=True)]
    rounding = _unit(values) + sum(parts)
    near = max(_NEAR * deviation, min(_ROUNDED * rounding, _NEAR_ROUNDED * deviation))
    # All rows are near, and each input matters.
    if rest.std() > near or (np.abs(weights) * scale < _NEAR * deviation).any():
        return None
    allowed = rounding + _ROUNDING * np.abs(values).max()
    if np.abs(rest).max() > allowed:
        return None
    constant = values.mean() - weights @ means
    terms = [_term(weight, name) for weight, name in zip(weights, inputs, strict=True)]
    if abs(constant) > allowed:
        terms.append(f"{constant:.4g}")
    return f"{target} = {' + '.join(terms)}".replace("+ -", "- ")


def _term(weight: float, name: str) -> str:
    return name if abs(weight - 1) < _NEAR * _NEAR else f"{weight:.4g} {name}"


def _unit(values: Values) -> float:
    """The unit that values are rounded to, such as 0.1; 0 without rounding."""
    for digits in range(_DIGITS + 1):
        scaled = values * 10**digits
        if (np.abs(scaled - np.rint(scaled)) <= _ROUNDING * np.maximum(np.abs(scaled), 1)).all():
            return float(10.0**-digits)
    return 0.0
