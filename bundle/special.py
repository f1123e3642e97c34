"""Special functions that numpy lacks, of arrays of float64."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The continued fraction takes about the square root of the smaller parameter.
_STEPS = 1000


def log_gamma(values: Floats) -> Floats:
    """The logarithm of the gamma function of positive values (DLMF 5.11.1, shifted by 8)."""
    product, high = np.ones_like(values), values + 8
    for shift in range(8):
        product *= values + shift
    square = 1 / (high * high)
    series = 1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    found: Floats = (high - 0.5) * np.log(high) - high + series / high - np.log(product)
    return found + 0.5 * math.log(2 * math.pi)


def incomplete_beta(a: Floats, b: Floats, x: Floats) -> Floats:
    """The regularised incomplete beta function (DLMF 8.17.22), by its continued fraction.

    Args:
        a: `[n]`, positive.
        b: `[n]`, positive.
        x: `[n]`, from 0 to 1.

    Returns:
        `[n]`, from 0 to 1.
    """
    # The fraction converges fast on one side; the other side is the complement.
    other = x > (a + 1) / (a + b + 2)
    with np.errstate(divide="ignore"):
        powers = a * np.log(x) + b * np.log1p(-x)
    a, b, x = np.where(other, b, a), np.where(other, a, b), np.where(other, 1 - x, x)
    front = np.exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + powers) / a
    share: Floats = front * _fraction(a, b, x)
    return np.where(other, 1 - share, share)


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """The continued fraction of DLMF 8.17.22, by Lentz's method (Thompson and Barnett, 1986)."""
    least = 1e-300
    whole, places = np.ones(len(a)), np.arange(len(a))
    ratio, inverse = np.ones(len(a)), _apart(1 - (a + b) * x / (a + 1), least) ** -1
    found = inverse.copy()
    # A few times the rounding error of a step. A smaller one may never be reached.
    error = np.minimum(1e-13 + 1e-16 * np.maximum(a, b), 1e-9)
    for step in range(1, _STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            inverse = 1 / _apart(1 + term * inverse, least)
            ratio = _apart(1 + term / ratio, least)
            found *= (change := ratio * inverse)
        is_open = np.abs(change - 1) >= error
        if 2 * np.count_nonzero(is_open) <= len(is_open):
            whole[places] = found
            if not is_open.any():
                return whole
            places = places[is_open]
            a, b, x, error, ratio, inverse, found = (
                each[is_open] for each in (a, b, x, error, ratio, inverse, found)
            )
    whole[places] = found
    return whole


def _apart(values: Floats, least: float) -> Floats:
    """Replace values that are nearer to 0 than `least`."""
    return np.where(np.abs(values) < least, least, values)
