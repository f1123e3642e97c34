"""Options of published training scripts, and arguments: their values with provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Value = int | float | str


class Argument(NamedTuple):
    """The value of an option, and where it comes from."""

    value: Any
    provenance: str


Arguments = dict[str, Argument]


class Option(NamedTuple):
    """How the value of an option is read, and what it means.

    Attributes:
        read: Raises ValueError for what is no value of it.
        meaning: For the reader who is asked for it.
        asked: Whether it can be given by itself; else it is read from settings and scripts only.
    """

    read: Callable[[str], Value]
    meaning: str
    asked: bool = True


def whole(least: int) -> Callable[[str], Value]:
    """A whole number from `least` on."""

    def read(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError(f"expected a whole number from {least}")
        return number

    return read


count = whole(1)


def switch(text: str) -> int:
    """0 or 1, however it is written."""
    values = {"0": 0, "1": 1, "false": 0, "true": 1}
    if text.lower() not in values:
        raise ValueError("expected 0 or 1")
    return values[text.lower()]


def one_of(*choices: str) -> Callable[[str], Value]:
    """One of these words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
        return text

    return read


# A code base that calls these otherwise translates its names with `CodeBase.aliases`.
COMMON: Mapping[str, Option] = {
    "seq_len": Option(count, "steps of history"),
    "pred_len": Option(count, "steps of forecast"),
    "enc_in": Option(count, "channels"),
    "c_out": Option(count, "channels of the forecast"),
    "d_model": Option(count, "features of a token"),
    "n_heads": Option(count, "attention heads"),
    "e_layers": Option(count, "encoder layers"),
    "d_ff": Option(count, "width of the feed-forward layers"),
    "activation": Option(one_of("gelu", "relu"), "gelu or relu"),
    "dropout": Option(float, "probability in training"),
    "features": Option(one_of("M", "S", "MS"), "M for all channels, S for the target alone, or MS"),
    "target": Option(str, "the target's column; in custom data the published code puts it last"),
    "split": Option(str, "ett_hour, ett_minute, custom, or three fractions such as 0.7,0.1,0.2"),
    "data": Option(str, "the kind of data set", asked=False),
    "model": Option(str, "the model", asked=False),
}
# What the loader of each kind of data set takes for training, validation and test.
SPLITS: Mapping[str, str] = {
    "ETTh1": "ett_hour",
    "ETTh2": "ett_hour",
    "ETTm1": "ett_minute",
    "ETTm2": "ett_minute",
    "custom": "custom",
}
