"""Scores of a ledger on the terminal."""

from __future__ import annotations

import numpy as np
import pandas as pd

from foretell.terminal.tables import Facts, show
from foretell.terminal.words import numbers

_ERRORS = {"mae": "MAE", "rmse": "RMSE", "bias": "bias", "mase": "MASE"}
_UNKNOWN = "-"


def print_scores(scores: pd.DataFrame, by: str) -> None:
    """Print a row for each version and group.

    Args:
        scores: The result of `Client.accuracy`.
        by: Groups of the rows.
    """
    groups = ["version"] if by == "total" else ["version", by]
    columns = {name: scores[name].astype(str).tolist() for name in groups}
    columns["values"] = [f"{count:,}" for count in scores["count"]]
    columns |= {title: _numbers(scores[name]) for name, title in _ERRORS.items()}
    for name in scores:
        kind, _, level = str(name).partition("_")
        if kind == "coverage":
            columns[f"within {float(level):.4g}"] = [
                _UNKNOWN if pd.isna(share) else f"{share:.1%}" for share in scores[name]
            ]
            columns[f"width of {float(level):.4g}"] = _numbers(scores[f"width_{level}"])
    show(Facts("", [*columns], [*zip(*columns.values(), strict=True)]))


def _numbers(column: pd.Series) -> list[str]:
    values = column.to_numpy(np.float64, na_value=np.nan)
    return [_UNKNOWN if text == "nan" else text for text in numbers(values)]
