"""Future covariates from which a target can be computed: a model would copy what it forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.splits import Span

Values = NDArray[np.float64]
# Fewest rows, and fewest different values of series that are compared at other steps, so that
# chance explains no match.
_ROWS, _DIFFERENT = 20, 10
# Largest deviation, in standard deviations of the target, and least correlation worth a look.
_NEAR, _ALIKE = 0.01, 0.98
# Relative rounding error of float32, with a margin.
_ROUNDING = 1e-6
# Steps of best correlation that are looked at, and digits after the point of written numbers.
_STEPS, _DIGITS = 3, 6


class _Rows(NamedTuple):
    """Training rows: covariates without categories, and targets; NaN where one was filled in."""

    covariates: dict[str, list[Values]]
    targets: dict[str, list[Values]]


def check_copies(panel: Panel, train: Iterable[Span], targets: Sequence[str], horizon: int) -> None:
    """Refuse future covariates that give a target in all training rows, up to rounding.

    They equal a target, are a multiple of it plus a constant, also some steps earlier or later, or
    give it as a weighted sum of two. A target of at least `horizon` steps before is known.

    Args:
        panel: The data.
        train: The training rows.
        targets: Channels that are forecast.
        horizon: Steps that the model forecasts.

    Raises:
        DataError: names columns, formulae and remedies.
    """
    rows = _rows(panel, train, targets)
    if found := [*_found(rows, horizon)]:
        file = f"{panel.source.path}: " if panel.source else ""
        raise DataError(
            f"{file}future covariates give the target in all training rows: {'; '.join(found)}. "
            "Read them with --past-covariates, or leave them out. If they are really known for "
            "the horizon, confirm it with --set target_copies=allow"
        )


def _rows(panel: Panel, train: Iterable[Span], targets: Sequence[str]) -> _Rows:
    known = panel.covariates.future if panel.covariates else ()
    spans = list(train)
    covariates: dict[str, list[Values]] = {}
    for place, each in enumerate(known):
        if each.type != "category":
            parts = [(panel.tables[span.table].covariates, span) for span in spans]
            covariates[each.name] = [
                codes[span.start : span.end, place] for codes, span in parts if codes is not None
            ]
    values = [panel.tables[table].known(start, end) for table, start, end in spans]
    at = {name: panel.channels.index(name) for name in targets}
    return _Rows(
        covariates, {name: [part[:, place] for part in values] for name, place in at.items()}
    )


def _found(rows: _Rows, horizon: int) -> Iterator[str]:
    joined = {name: np.concatenate(parts) for name, parts in rows.covariates.items()}
    for target, parts in rows.targets.items():
        values = np.concatenate(parts)
        copies = []
        for name, own in joined.items():
            formula = _formula(target, values, {name: own})
            if formula is None:
                formula = _at_other_steps(target, parts, name, rows.covariates[name], horizon)
            if formula is not None:
                copies.append(name)
                yield formula
        others = [name for name in joined if name not in copies]
        for pair in _alike_pairs(values, {name: joined[name] for name in others}):
            formula = _formula(target, values, {name: joined[name] for name in pair})
            if formula is not None:
                yield formula


def _formula(target: str, values: Values, inputs: dict[str, Values]) -> str | None:
    """How inputs give a target in every row, such as `y = 1.8 x + 32`; None if they do not."""
    known = ~np.isnan(values)
    values, columns = values[known], [own[known] for own in inputs.values()]
    if len(values) < _ROWS or not all(np.ptp(each) > 0 for each in (values, *columns)):
        return None
    means = [column.mean() for column in columns]
    centred = np.column_stack([column - mean for column, mean in zip(columns, means, strict=True)])
    scale = centred.std(axis=0)
    weights = np.linalg.lstsq(centred / scale, values - values.mean(), rcond=None)[0] / scale
    rest = values - values.mean() - centred @ weights
    # All rows are near, and each input matters.
    least = _NEAR * values.std()
    if rest.std() > least or (np.abs(weights) * scale < least).any():
        return None
    parts = [abs(weight) * _unit(each) for weight, each in zip(weights, columns, strict=True)]
    allowed = _unit(values) + sum(parts) + _ROUNDING * np.abs(values).max()
    if np.abs(rest).max() > allowed:
        return None
    constant = values.mean() - weights @ means
    terms = [_term(weight, name) for weight, name in zip(weights, inputs, strict=True)]
    if abs(constant) > allowed:
        terms.append(f"{constant:.4g}")
    return f"{target} = {' + '.join(terms)}".replace("+ -", "- ")


def _term(weight: float, name: str) -> str:
    return name if abs(weight - 1) < _NEAR * _NEAR else f"{weight:.4g} {name}"


def _unit(values: Values) -> float:
    """The unit that values are rounded to, such as 0.1; 0 without rounding."""
    for digits in range(_DIGITS + 1):
        scaled = values * 10**digits
        if (np.abs(scaled - np.rint(scaled)) <= _ROUNDING * np.maximum(np.abs(scaled), 1)).all():
            return float(10.0**-digits)
    return 0.0


def _at_other_steps(
    target: str, values: Sequence[Values], name: str, own: Sequence[Values], horizon: int
) -> str | None:
    """How a covariate gives the target some steps later, or fewer than a horizon before."""
    longest = max(range(len(values)), key=lambda place: len(values[place]))
    for steps in _alike_steps(own[longest], values[longest], horizon):
        # Row `t` of the covariate is beside row `t + steps` of the target.
        after, before = max(steps, 0), max(-steps, 0)
        pairs = [
            (one[before : len(one) - after], other[after : len(other) - before])
            for one, other in zip(own, values, strict=True)
            if len(one) > abs(steps)
        ]
        inputs, given = (np.concatenate(each) for each in zip(*pairs, strict=True))
        there = given[~np.isnan(given)]
        if min(len(np.unique(there)), len(np.unique(inputs))) < _DIFFERENT:
            continue
        shifted = f"{target} {abs(steps)} step{'s' * (abs(steps) > 1)} "
        shifted += "later" if steps > 0 else f"before, and the horizon has {horizon}"
        if _formula(target, given, {name: inputs}) is not None:
            return f"{name} gives {shifted}"
    return None


def _alike_steps(own: Values, values: Values, horizon: int) -> list[int]:
    """Steps other than 0 by which a series is most like another, if it is much like it."""
    values = np.where(np.isnan(values), np.nanmean(values), values) if len(values) else values
    reach = min(horizon, len(values) - _ROWS)
    if reach < 1 or np.ptp(own) == 0 or np.ptp(values) == 0:
        return []
    size = 2 * len(values)
    own, values = (own - own.mean()) / own.std(), (values - values.mean()) / values.std()
    products = np.fft.irfft(np.fft.rfft(own, size).conj() * np.fft.rfft(values, size), size)
    steps = np.array([*range(1, reach + 1), *range(-min(reach, horizon - 1), 0)])
    alike = np.abs(products[steps]) / (len(values) - np.abs(steps))
    best = np.argsort(-alike, kind="stable")[:_STEPS]
    return [int(steps[place]) for place in best if alike[place] > _ALIKE]


def _alike_pairs(values: Values, columns: dict[str, Values]) -> Iterator[tuple[str, str]]:
    """Pairs of columns whose weighted sum is much like the values."""
    known = ~np.isnan(values)
    varied = [name for name, own in columns.items() if np.ptp(own[known]) > 0]
    if np.count_nonzero(known) < _ROWS or np.ptp(values[known]) == 0 or len(varied) < 2:
        return
    alike = np.corrcoef([values[known], *(columns[name][known] for name in varied)])
    for first, second in combinations(range(len(varied)), 2):
        one, two, both = alike[0, first + 1], alike[0, second + 1], alike[first + 1, second + 1]
        rest = 1 - both**2
        if rest > _ROUNDING and (one**2 + two**2 - 2 * one * two * both) / rest > _ALIKE:
            yield varied[first], varied[second]
