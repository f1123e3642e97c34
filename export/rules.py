"""Limits of the differences between a graph and torch in float64, and the reasons.

The comparison covers forecasts of natural windows, alone, in batches, and one against the other;
the attention of every stage; and forecasts of adversarial windows, which lie far outside the data.
Errors are relative (`foretell.bundle.measure`). For attention they are errors of a weight, relative
to the largest weight of the query if that is more than 1. The largest batch has 64 windows, or as
many as fit where attention is large (`foretell.models.batches`).

An attention may choose: lags, buckets, clusters, the queries that count. It takes the k largest of
some scores, and where the k-th and the next are too close, rounding decides, in torch as much as in
the graph. Another lag moves a forecast by up to a standard deviation, so such windows cannot be
compared. A window counts as ill-conditioned if one choice of one stage is, in any head or channel.

In float32

- a natural window is compared unless rounding can bridge the difference between the last candidate
  that was chosen and the next, and every window that is compared must choose the same. An error of
  more than `ROUNDING` times the largest score does not count as rounding, so a wrong graph cannot
  exclude windows. At most half of the windows may be excluded;
- an adversarial window is compared likewise, unless torch's own float32 chooses differently. A
  model may amplify rounding there without bound. So the error of a graph may be `slack` times that
  of torch's own float32: in its forecast if that is more than the tolerance, in a score if that is
  more than `ROUNDING`;
- on natural windows the error of a forecast or a weight may also be `slack` times that of torch's
  own float32, but at most `ROUNDING`. Weights that may be negative are divided by their sum, which
  may be near 0.

In half precision

- a forecast errs by a few roundings of operands and of results. A weight errs by the rounding of
  its score, which grows with the score. The tolerances are 8 and 32 units in the last place of a
  number below 1;
- choices that differ are an error of the precision, not of the graph. Their share on natural
  windows has a check of its own, and the other windows are compared;
- on adversarial windows the error may exceed that of torch's own float32 by the ratio of the units
  in the last place.

In any precision

- if no window of an adversarial kind can be compared, its check is called `not compared`: with an
  offset of 10,000 the scores of an auto-correlation are little more than rounding. At least a
  quarter of the kinds must have a window that is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretell.bundle.results import Precision

# Largest error that counts as rounding in float32, relative to the largest score or value.
ROUNDING = 1e-4
# Keeps a margin finite that is relative to scores of zero.
TINY = 1e-30
# The share of natural windows that must be compared.
LEAST_COMPARED = 0.5
# The share of adversarial kinds that must be compared. In most kinds many steps are the same:
# without a calendar all lags of a constant are equal.
LEAST_KINDS = 0.25
_UNIT = 2.0**-24


@dataclass(frozen=True)
class Rules:
    """Limits of the differences in a precision.

    Attributes:
        forecast: Largest error of a forecast.
        attention: Largest error of an attention weight.
        other_choices: Largest share of natural windows with other choices; None if no window that
            is compared may have any.
        slack: Factor by which the error of a forecast may exceed that of torch's float32.
        reserve: Factor on the measured rounding, for windows that were not measured; 1 in half
            precision, where more would make most windows ill-conditioned.
        accuracy: Largest relative difference of the errors on the test split; the checkpoint's may
            come from another device.
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
