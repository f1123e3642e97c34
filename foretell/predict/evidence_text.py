"""Attention on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np
from rich.table import Table

from foretell.client.explaining import Stage
from foretell.predict.evidence import Evidence, Lags
from foretell.terminal.tables import show, width

# Rows that a reader can take in.
_MOST_LAGS, _MOST_KEYS, _MOST_STEPS = 8, 8, 24
_WIDE, _BAR = 100, 20


def print_evidence(found: Sequence[Evidence], stages: Sequence[Stage]) -> None:
    """Print, for each stage, the strongest lags, or the strongest keys of forecast steps.

    If no query is a forecast step, print the keys with the largest mean weights.

    Args:
        found: Evidence of the stages that have a map.
        stages: All stages of the answer.
    """
    for one in found:
        click.echo(f"\n{one.name} ({one.kind})")
        if one.lags is not None:
            show(_lag_table(one.lags))
        elif one.ahead.any():
            show(_step_table(one))
        else:
            show(_key_table(one))
    if without := [stage.name for stage in stages if stage.form == "none"]:
        click.echo(f"without a map: {', '.join(without)}")


def _lag_table(lags: Lags) -> Table:
    table = _table("lag", "period", "weight", "", "correlation")
    most = float(lags.weights.max())
    for lag, words, weight in list(zip(lags.positions, lags.periods, lags.weights, strict=True))[
        :_MOST_LAGS
    ]:
        known = 0 <= lag < len(lags.correlation)
        correlation = f"{lags.correlation[lag]:.3g}" if known else ""
        table.add_row(str(lag), words, f"{weight:.1%}", _bar(weight / most), correlation)
    return table


def _step_table(stage: Evidence) -> Table:
    steps = np.flatnonzero(stage.ahead)
    stride = -(-len(steps) // _MOST_STEPS)
    count = 3 if width() >= _WIDE else 2
    of_all = "" if stride == 1 else f" (one in {stride})"
    table = _table(f"forecast step{of_all}", *(["looked at", "weight"] * count))
    for step in steps[::stride]:
        found = stage.strongest(stage.weights[step], count)
        cells = [cell for name, weight in found for cell in (name, f"{weight:.1%}")]
        table.add_row(stage.queries[step], *cells)
    return table


def _key_table(stage: Evidence) -> Table:
    table = _table("looked at most", "weight", "")
    found = stage.strongest(stage.weights.mean(axis=0), _MOST_KEYS)
    for name, weight in found:
        table.add_row(name, f"{weight:.1%}", _bar(weight / found[0][1]))
    return table


def _table(*titles: str) -> Table:
    table = Table()
    for title in titles:
        table.add_column(title, justify="right" if title in ("lag", "weight") else "left")
    return table


def _bar(share: float) -> str:
    return "█" * max(round(share * _BAR), 1) if share > 0 else ""
