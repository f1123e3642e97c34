"""The published code's own argument names: the one vocabulary of settings, scripts and flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from foretell.models.importers.errors import ImporterError

Value = int | float | str


class Known(NamedTuple):
    """The value of an argument, and what told it."""

    value: Value
    origin: str


Facts = dict[str, Known]


class Argument(NamedTuple):
    """How an argument is read, and what it means."""

    read: Callable[[str], Value]
    meaning: str


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("expected a whole number from 1")
    return number


def _steps(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("expected a whole number from 0")
    return number


def _switch(text: str) -> int:
    values = {"0": 0, "1": 1, "false": 0, "true": 1}
    if text.lower() not in values:
        raise ValueError("expected 0 or 1")
    return values[text.lower()]


def _one_of(*choices: str) -> Callable[[str], Value]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
        return text

    return read


ARGUMENTS: dict[str, Argument] = {
    "seq_len": Argument(_count, "steps of history"),
    "label_len": Argument(_steps, "steps of history the decoder starts with"),
    "pred_len": Argument(_count, "steps of forecast"),
    "enc_in": Argument(_count, "channels"),
    "c_out": Argument(_count, "channels of the forecast"),
    "d_model": Argument(_count, "features of a token"),
    "n_heads": Argument(_count, "attention heads"),
    "e_layers": Argument(_count, "encoder layers"),
    "d_layers": Argument(_count, "decoder layers"),
    "d_ff": Argument(_count, "width of the feed-forward layers"),
    "factor": Argument(float, "lags kept, in units of ln(length)"),
    "moving_avg": Argument(_count, "steps of the moving average"),
    "activation": Argument(_one_of("gelu", "relu"), "gelu or relu"),
    "dropout": Argument(float, "probability in training"),
    "embed": Argument(_one_of("timeF", "fixed", "learned"), "timeF, fixed or learned"),
    "freq": Argument(str, "s, t, h, d, b, w or m: which calendar features were given"),
    "features": Argument(
        _one_of("M", "S", "MS"), "M for all channels, S for the target alone, or MS"
    ),
    "target": Argument(str, "the target's column; in custom data the published code puts it last"),
    "patch_len": Argument(_count, "steps of a patch"),
    "stride": Argument(_count, "steps from one patch to the next"),
    "padding_patch": Argument(_one_of("end", "None"), "end or None"),
    "revin": Argument(_switch, "1 if each window is normalised, else 0"),
    "affine": Argument(_switch, "1 if that has trained parameters, else 0"),
    "subtract_last": Argument(_switch, "1 if it subtracts the last value, 0 if the mean"),
    "individual": Argument(_switch, "1 with a head per channel, else 0"),
    "decomposition": Argument(_switch, "1 with a network each for trend and rest, else 0"),
    "kernel_size": Argument(_count, "steps of the decomposition's moving average"),
    "split": Argument(str, "ett_hour, ett_minute, custom, or three fractions such as 0.7,0.1,0.2"),
}

# Read from settings and scripts; as flags they would mean something else here.
_DESCRIPTIONS: dict[str, Argument] = {
    "data": Argument(str, "the kind of data set"),
    "model": Argument(str, "the model"),
    "task_name": Argument(str, "the task"),
}
_ALIASES = {"horizon": "pred_len"}


def read_arguments(given: dict[str, Any], origin: Callable[[str], str]) -> Facts:
    """Read the arguments that matter here out of named values; all others are left out.

    Args:
        given: Values by the published code's names, as text, numbers or truth values.
        origin: What to say an argument of a name was told by.

    Raises:
        ImporterError: a value does not fit its argument; the message names it and its origin.
    """
    facts: Facts = {}
    for name, value in given.items():
        name = _ALIASES.get(name, name)
        argument = ARGUMENTS.get(name) or _DESCRIPTIONS.get(name)
        if argument is None:
            continue
        try:
            facts[name] = Known(argument.read(str(value)), origin(name))
        except ValueError as error:
            reason = str(error) if "expected" in str(error) else "expected a number"
            raise ImporterError(f"{name} {value!r} ({origin(name)}): {reason}") from None
    return facts
