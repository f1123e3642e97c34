"""By how much a graph may differ from torch in float64, and why.

Forecasts are compared on natural windows, alone, in batches, and alone against among others; the
attention of every stage; and forecasts on adversarial windows, which lie far outside of the data.
Errors are relative (`foretell.bundle.comparison`), for attention they are those of a weight.

Auto-correlation keeps the k largest correlations, and where the k-th and the next are too close,
rounding decides, in torch as much as in the graph. Another lag moves a forecast by up to a standard
deviation, so such windows cannot be compared.

In float32

- a natural window is compared unless rounding can bridge the difference between the last lag that
  was kept and the next, and every one that is compared must keep the same lags. What is more than
  `ROUNDING` of the largest correlation is no rounding: a graph leaves out no window by being wrong.
  At most half of the windows may be left out;
- so is an adversarial window, but a model may amplify rounding there without bound: a graph may be
  `slack` times as wrong as torch's own float32, if that is more than the tolerance.

In half precision

- a forecast errs by a few roundings, of operands and of results, and a weight by the rounding of
  its score, which is as many times larger as scores are: the tolerances are 8 and 32 units in the
  last place of a number below 1;
- lags that differ are an error of the precision, not of the graph. Their share is a check of its
  own on natural windows, and the other windows are compared;
- on adversarial windows it may be as many times as wrong as torch's own float32 as its units are
  larger.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretell.bundle.manifest import Precision

# The most that is taken for rounding in float32, relative to the largest correlation of the window.
ROUNDING = 1e-4
# Keeps a margin finite that is relative to a correlation of zero.
TINY = 1e-30
# The share of the natural windows that must be compared.
LEAST_COMPARED = 0.5
_UNIT = 2.0**-24


@dataclass(frozen=True)
class Rules:
    """What may differ in a precision.

    Attributes:
        forecast: Largest error of a forecast.
        attention: Largest error of an attention weight.
        other_lags: Largest share of natural windows with other lags; None where a window that has
            them must not be compared at all.
        slack: How many times as wrong as torch's float32 a forecast may be on adversarial windows.
        reserve: Factor on the rounding that was measured, for windows that were not. In half
            precision 1: more would call most windows ill-conditioned.
        accuracy: Relative difference of the errors on the test split; there may be another device
            behind the checkpoint's.
    """

    forecast: float
    attention: float
    other_lags: float | None
    slack: float
    reserve: float
    accuracy: float


def _half(unit: float, other_lags: float, accuracy: float) -> Rules:
    return Rules(
        forecast=8 * unit,
        attention=32 * unit,
        other_lags=other_lags,
        slack=unit / _UNIT,
        reserve=1,
        accuracy=accuracy,
    )


RULES: dict[Precision, Rules] = {
    "float32": Rules(
        forecast=1e-5, attention=1e-5, other_lags=None, slack=10, reserve=10, accuracy=1e-3
    ),
    "float16": _half(2.0**-11, other_lags=0.05, accuracy=0.01),
    "bfloat16": _half(2.0**-8, other_lags=0.15, accuracy=0.03),
}
