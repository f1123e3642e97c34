"""Physical limits of channels, which forecasts stay within."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, model_validator

from foretell.bundle.part import Part

Floats = NDArray[np.floating]


def shown(number: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(float(number)).removesuffix(".0")


class Bound(Part):
    """The range of a channel's values, written `LOW:HIGH`; either may be missing.

    Attributes:
        low: The smallest value, in the user's units.
        high: The largest value.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    low: float | None = None
    high: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        parts = [part.strip() or None for part in given.split(":")]
        if len(parts) != 2:
            raise ValueError("expected LOW:HIGH, such as 0: or 0:100")
        return dict(zip(("low", "high"), parts, strict=True))

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low is None and self.high is None:
            raise ValueError("expected a low or a high bound")
        if self.low is not None and self.high is not None and not self.low < self.high:
            low, high = shown(self.low), shown(self.high)
            raise ValueError(f"the low bound {low} is not below the high one {high}")
        return self

    def __str__(self) -> str:
        """`LOW:HIGH`."""
        return ":".join("" if one is None else shown(one) for one in (self.low, self.high))


def _of_texts(given: object) -> object:
    """Parse `NAME=LOW:HIGH`, separated by commas, in one text or several."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple):
        return given
    found: dict[str, str] = {}
    for one in (one for text in texts for one in str(text).split(",")):
        name, equals, bound = one.rpartition("=")
        if not equals:
            raise ValueError("expected CHANNEL=LOW:HIGH, such as irradiance=0: or humidity=0:100")
        if name.strip() in found:
            raise ValueError(f"{name.strip()} has two bounds")
        found[name.strip()] = bound
    return found


Bounds = Annotated[dict[str, Bound], BeforeValidator(_of_texts)]


@dataclass(frozen=True, eq=False)
class Limits:
    """The bounds of all channels of a model.

    Attributes:
        low: `[channels]` float64, minus infinity for a channel without a low bound.
        high: `[channels]` float64, infinity for a channel without a high bound.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def apply(self, values: Floats) -> NDArray[np.float64]:
        """Clip values `[…, channels]` to the bounds; NaN stays NaN."""
        return np.minimum(np.maximum(values, self.low), self.high)


def limits(bounds: Mapping[str, Bound], channels: Sequence[str]) -> Limits | None:
    """Bounds in the order of the channels; None if no channel has a bound."""
    given = [bounds.get(name) for name in channels]
    if not any(given):
        return None
    low = [-np.inf if one is None or one.low is None else one.low for one in given]
    high = [np.inf if one is None or one.high is None else one.high for one in given]
    return Limits(np.array(low), np.array(high))
