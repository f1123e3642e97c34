"""Comparisons of two versions of a model by a server's ledger."""

from __future__ import annotations

from datetime import date
from typing import Literal, TypedDict, Unpack
from urllib.parse import quote

from pydantic import TypeAdapter

from foretell.client.answers import Part
from foretell.client.exchange import Ask, Steps, call, parameters_of, read_json


class Compared(Part):
    """Two versions on the same windows.

    Attributes:
        windows: Windows that both forecast, whose actual values are known.
        origins: Different origins of these windows.
        series: Different series of these windows.
        loss_a: Mean absolute error of the first, in units of the naive forecast's.
        loss_b: As `loss_a`, of the second.
        relative: `loss_b` less `loss_a`, over `loss_a`.
        p_value: Probability of so large a difference in favour of the second between equal ones.
        wait: Origins to wait for, where there are too few.
        verdict: The quality of the second next to the first.
        sentence: The verdict in words.
    """

    windows: int
    origins: int
    series: int
    loss_a: float | None
    loss_b: float | None
    relative: float | None
    p_value: float | None
    wait: int
    verdict: Literal["better", "worse", "no difference", "too few"]
    sentence: str


class CompareOptions(TypedDict, total=False):
    """The options of `Client.compare`."""

    series: str | None
    since: str | date | None
    until: str | date | None
    namespace: str | None
    frequency: str | None


_COMPARED = TypeAdapter(Compared)


def compare(
    model: str, a: str, b: str, retry_for: float, **options: Unpack[CompareOptions]
) -> Steps[Compared]:
    """Request a comparison; see `Client.compare`."""
    parameters = {"a": a, "b": b, **parameters_of(options)}
    ask = Ask("GET", f"models/{quote(model, safe='')}/compare", parameters)
    return read_json((yield from call(ask, retry_for)), _COMPARED)
