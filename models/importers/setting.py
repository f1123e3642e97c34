"""Setting names: the checkpoint folders of the published code, which spell out its arguments."""

from __future__ import annotations

import re

from foretell.models.importers.arguments import Facts, read_arguments
from foretell.models.importers.errors import ImporterError

# Autoformer's and PatchTST's names; the Time-Series-Library puts the task in front, and since 2024
# has `expand` and `dc`; other forks leave out `dt`.
_SETTING = re.compile(
    r"(?P<head>.+)_ft(?P<features>MS|M|S)"
    r"_sl(?P<seq_len>\d+)_ll(?P<label_len>\d+)_pl(?P<pred_len>\d+)"
    r"_dm(?P<d_model>\d+)_nh(?P<n_heads>\d+)_el(?P<e_layers>\d+)_dl(?P<d_layers>\d+)_df(?P<d_ff>\d+)"
    r"(?:_expand\d+_dc\d+)?_fc(?P<factor>\d+)_eb(?P<embed>timeF|fixed|learned)(?:_.*)?"
)
_HEAD = re.compile(
    r"(?:(?P<task_name>(?:long|short)_term_forecast|zero_shot_forecast|imputation|"
    r"anomaly_detection|classification)_)?"
    r".*_(?P<model>[A-Za-z]+)_(?P<data>[A-Za-z0-9]+)"
)


def is_setting(name: str) -> bool:
    """Whether a folder name is one the published code gives."""
    return _SETTING.fullmatch(name) is not None


def parse_setting(name: str, origin: str = "setting") -> Facts:
    """Read the arguments a setting name spells out.

    Args:
        name: Such as `ETTh1_336_96_PatchTST_ETTh1_ftM_sl336_ll48_…_ebtimeF_dtTrue_Exp_0`.
        origin: What the arguments are said to be told by.

    Raises:
        ImporterError: the name does not have this form.
    """
    setting = _SETTING.fullmatch(name)
    if setting is None:
        raise ImporterError(
            f"setting {name!r}: expected a folder name such as "
            "ETTh1_336_96_PatchTST_ETTh1_ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128_fc1_ebtimeF_…"
        )
    head = _HEAD.fullmatch(setting["head"])
    told = setting.groupdict() | (head.groupdict() if head else {})
    given = {key: value for key, value in told.items() if value is not None and key != "head"}
    return read_arguments(given, lambda _: origin)
