"""By how much a graph may differ from torch in float64, and why.

Forecasts are compared on natural windows, alone, in batches, and alone against among others; the
attention of every stage; and forecasts on adversarial windows, which lie far outside of the data.
Errors are relative (`foretell.bundle.measure`). For attention they are those of a weight,
relative to the largest that the query has where that is more than 1. The largest batch has 64
windows, or as many as fit where attention is large (`foretell.models.batches`).

An attention may choose: lags, buckets, clusters, the queries that count. It takes the k largest of
some scores, and where the k-th and the next are too close, rounding decides, in torch as much as in
the graph. Another lag moves a forecast by up to a standard deviation, so such windows cannot be
compared. A window counts as ill-conditioned if one choice of one stage is, in any head or channel.

In float32

- a natural window is compared unless rounding can bridge the difference between the last candidate
  that was chosen and the next, and every one that is compared must choose the same. What is more
  than `ROUNDING` of the largest score is no rounding: a graph leaves out no window by being wrong.
  At most half of the windows may be left out;
- so is an adversarial window, unless torch's own float32 chooses otherwise. A model may amplify
  rounding there without bound: a graph may be `slack` times as wrong as torch's own float32, in its
  forecast if that is more than the tolerance, and in a score if that is more than `ROUNDING`;
- on natural windows a forecast or a weight may likewise be `slack` times as wrong as torch's own
  float32, but by `ROUNDING` at most: weights that may be negative are divided by their sum, which
  may be near 0.

In half precision

- a forecast errs by a few roundings, of operands and of results, and a weight by the rounding of
  its score, which is as many times larger as scores are: the tolerances are 8 and 32 units in the
  last place of a number below 1;
- choices that differ are an error of the precision, not of the graph. Their share is a check of its
  own on natural windows, and the other windows are compared;
- on adversarial windows it may be as many times as wrong as torch's own float32 as its units are
  larger.

In any precision

- a kind of adversarial windows of which none can be compared says nothing, and its check is called
  `not compared`: with an offset of 10,000 the scores of an auto-correlation are rounding and little
  else. Of all kinds at least a quarter must have a window that is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretell.bundle.manifest import Precision

# The most that is taken for rounding in float32, relative to the largest score or value.
ROUNDING = 1e-4
# Keeps a margin finite that is relative to scores of zero.
TINY = 1e-30
# The share of natural windows that must be compared.
LEAST_COMPARED = 0.5
# Likewise of the kinds of adversarial windows. Most kinds are the same at many steps: without a
# calendar all lags of a constant are alike.
LEAST_KINDS = 0.25
_UNIT = 2.0**-24


@dataclass(frozen=True)
class Rules:
    """What may differ in a precision.

    Attributes:
        forecast: Largest error of a forecast.
        attention: Largest error of an attention weight.
        other_choices: Largest share of natural windows with other choices; None where a window
            that has them must not be compared at all.
        slack: How many times as wrong as torch's float32 a forecast may be on adversarial windows.
        reserve: Factor on the rounding that was measured, for windows that were not. In half
            precision 1: more would call most windows ill-conditioned.
        accuracy: Relative difference of the errors on the test split; there may be another device
            behind the checkpoint's.
    """

    forecast: float
    attention: float
    other_choices: float | None
    slack: float
    reserve: float
    accuracy: float


def _half(unit: float, other_choices: float, accuracy: float) -> Rules:
    return Rules(
        forecast=8 * unit,
        attention=32 * unit,
        other_choices=other_choices,
        slack=unit / _UNIT,
        reserve=1,
        accuracy=accuracy,
    )


RULES: dict[Precision, Rules] = {
    "float32": Rules(
        forecast=1e-5, attention=1e-5, other_choices=None, slack=10, reserve=10, accuracy=1e-3
    ),
    "float16": _half(2.0**-11, other_choices=0.05, accuracy=0.01),
    "bfloat16": _half(2.0**-8, other_choices=0.15, accuracy=0.03),
}
