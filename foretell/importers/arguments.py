"""Arguments of published training code: values with provenance, and options to set them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from foretell.importers.errors import ImporterError


class Argument(NamedTuple):
    """The value of an argument, and its provenance."""

    value: Any
    provenance: str


Arguments = dict[str, Argument]
Values = Mapping[str, Any]


class Option(NamedTuple):
    """An argument that a user may set.

    Attributes:
        kind: Type of the value.
        meaning: Meaning of the argument, for help and messages.
        settable: Whether `--set` takes it; otherwise only settings and scripts have it.
    """

    kind: Any
    meaning: str
    settable: bool = True


_Switch = Annotated[bool, AfterValidator(int)]
OPTIONS: Mapping[str, Option] = {
    "seq_len": Option(PositiveInt, "steps of history"),
    "pred_len": Option(PositiveInt, "steps of forecast"),
    "enc_in": Option(PositiveInt, "channels"),
    "c_out": Option(PositiveInt, "channels of the forecast"),
    "d_model": Option(PositiveInt, "features of a token"),
    "n_heads": Option(PositiveInt, "attention heads"),
    "e_layers": Option(PositiveInt, "encoder layers"),
    "d_ff": Option(PositiveInt, "width of the feed-forward layers"),
    "activation": Option(Literal["gelu", "relu"], "gelu or relu"),
    "dropout": Option(float, "probability in training"),
    "features": Option(Literal["M", "S", "MS"], "M for all channels, S for the target, or MS"),
    "target": Option(str, "the target's column; in custom data the published code puts it last"),
    "split": Option(str, "ett_hour, ett_minute, custom, or three fractions such as 0.7,0.1,0.2"),
    "data": Option(str, "the kind of data set", settable=False),
    "model": Option(str, "the model", settable=False),
    "task_name": Option(
        Literal["long_term_forecast", "short_term_forecast", "zero_shot_forecast"],
        "the task",
        settable=False,
    ),
    "label_len": Option(NonNegativeInt, "steps of history the decoder starts with"),
    "d_layers": Option(PositiveInt, "decoder layers"),
    "factor": Option(float, "lags kept, in units of ln(length)"),
    "moving_avg": Option(PositiveInt, "steps of the moving average"),
    "embed": Option(Literal["timeF", "fixed", "learned"], "timeF, fixed or learned"),
    "freq": Option(str, "s, t, h, d, b, w or m: the frequency, which sets the calendar features"),
    "patch_len": Option(PositiveInt, "steps of a patch"),
    "stride": Option(PositiveInt, "steps from one patch to the next"),
    "padding_patch": Option(Literal["end", "None"], "end or None"),
    "revin": Option(_Switch, "1 if each window is normalised, else 0"),
    "use_norm": Option(_Switch, "1 if TimeXer normalises each window, else 0"),
    "affine": Option(_Switch, "1 if the normalisation has trained parameters, else 0"),
    "subtract_last": Option(_Switch, "1 if it subtracts the last value, 0 if the mean"),
    "individual": Option(_Switch, "1 with a head per channel, else 0"),
    "decomposition": Option(_Switch, "1 with a network each for trend and rest, else 0"),
    "kernel_size": Option(PositiveInt, "steps of the decomposition's moving average"),
    "marks": Option(_Switch, "1 if calendar features are tokens next to the channels, else 0"),
}
# Names of arguments in TFB.
ALIASES = {"horizon": "pred_len"}
# The Time-Series-Library puts the task in front and since 2024 adds `expand` and `dc`; other forks
# leave out `dt`.
_SETTING = re.compile(
    r"(?:(?:(?P<task_name>(?:long|short)_term_forecast|zero_shot_forecast|imputation|"
    r"anomaly_detection|classification)_)?.*_(?P<model>[A-Za-z]+)_(?P<data>[A-Za-z0-9]+)|.+)"
    r"_ft(?P<features>MS|M|S)_sl(?P<seq_len>\d+)_ll(?P<label_len>\d+)_pl(?P<pred_len>\d+)"
    r"_dm(?P<d_model>\d+)_nh(?P<n_heads>\d+)_el(?P<e_layers>\d+)_dl(?P<d_layers>\d+)_df(?P<d_ff>\d+)"
    r"(?:_expand\d+_dc\d+)?_fc(?P<factor>\d+)_eb(?P<embed>timeF|fixed|learned)(?:_.*)?"
)


def values_of(arguments: Arguments) -> dict[str, Any]:
    """The values without their provenance."""
    return {name: argument.value for name, argument in arguments.items()}


def with_provenance(values: Values, provenance: str) -> Arguments:
    """Values with a provenance; values that have one keep it."""
    return {
        name: value if isinstance(value, Argument) else Argument(value, provenance)
        for name, value in values.items()
    }


def read_arguments(given: Mapping[str, object], provenance: str | None = None) -> Arguments:
    """Read the known options from named values and ignore all others.

    Args:
        given: Values by the published names, as text, numbers or booleans.
        provenance: Provenance of the values; None for `--set`.

    Raises:
        ImporterError: a value does not fit its option; the message names it and its provenance.
    """
    arguments: Arguments = {}
    for name, value in given.items():
        name = ALIASES.get(name, name)
        if name not in OPTIONS:
            continue
        origin = provenance or "--set"
        try:
            known = TypeAdapter(OPTIONS[name].kind).validate_python(str(value))
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            raise ImporterError(f"{name} {value!r} ({origin}): {what}") from None
        arguments[name] = Argument(known, origin)
    return arguments


def read_setting(name: str, provenance: str) -> Arguments | None:
    """Read the arguments in the name of a checkpoint's folder.

    Args:
        name: Name such as `…_ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128_fc1_ebtimeF_…`.
        provenance: Provenance of the arguments.

    Returns:
        None if the name has another form.
    """
    found = _SETTING.fullmatch(name)
    if found is None:
        return None
    given = {key: value for key, value in found.groupdict().items() if value is not None}
    return read_arguments(given, provenance)
