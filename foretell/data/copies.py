"""Covariates from which a target can be computed before it is known: a model would copy it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.data.alike import Alike
from foretell.data.errors import DataError
from foretell.data.formulae import formula_of
from foretell.data.panel import Panel
from foretell.data.splits import Span

Values = NDArray[np.float64]
# Fewest rows, and fewest different values, that are compared at other steps, so that chance
# explains no match.
_ROWS, _DIFFERENT = 50, 10


class _Columns(NamedTuple):
    """Training rows of all spans one after another; NaN where a value was filled in.

    Attributes:
        covariates: Covariates without categories by name, future ones first.
        future: Number of the future ones.
        targets: Targets by name.
        ends: Row after the last one of each span.
    """

    covariates: dict[str, Values]
    future: int
    targets: dict[str, Values]
    ends: NDArray[np.intp]


class _Copy(NamedTuple):
    """Covariates that give a target some steps later, or earlier where `steps` is negative."""

    names: tuple[str, ...]
    steps: int
    message: str


def check_copies(
    panel: Panel, train: Iterable[Span], targets: Sequence[str], context: int, horizon: int
) -> None:
    """Refuse covariates that give a target before it is known, in all training rows.

    They equal it, are a multiple of it plus a constant, or give it as a weighted sum of two, up to
    rounding. Row `t` of a future covariate must not give the target of row `t + steps` for steps
    from `1 - horizon` to `context + horizon - 1`, since the model reads one such row before a step
    that it forecasts. A past covariate must not from step 1. Earlier targets are known.

    Args:
        panel: The data.
        train: The training rows.
        targets: Channels that are forecast.
        context: Steps that the model reads.
        horizon: Steps that the model forecasts.

    Raises:
        DataError: names columns, formulae and remedies.
    """
    columns = _columns(panel, list(train), targets)
    found = [
        copy for name in columns.targets for copy in _copies_of(columns, name, context, horizon)
    ]
    if found:
        file = f"{panel.source.path}: " if panel.source else ""
        raise DataError(
            f"{file}covariates give a target before it is known, in all training rows: "
            f"{'; '.join(copy.message for copy in found)}. {_remedy(found)}. If the values are "
            "really known that early, confirm it with --set target_copies=allow"
        )


def _remedy(found: Sequence[_Copy]) -> str:
    later = {name: None for copy in found if copy.steps > 0 for name in copy.names}
    others = {name: None for copy in found for name in copy.names if name not in later}
    remedies = []
    if others:
        remedies.append(f"Read {', '.join(others)} with --past-covariates, or leave them out")
    if later:
        remedies.append(f"Leave out {', '.join(later)}: the past alone gives a later target")
    return ". ".join(remedies)


def _columns(panel: Panel, spans: Sequence[Span], targets: Sequence[str]) -> _Columns:
    known = panel.covariates
    covariates: dict[str, Values] = {}
    for place, each in enumerate(known.future if known else ()):
        if each.type != "category":
            parts = [
                panel.tables[table].known_covariates(start, end) for table, start, end in spans
            ]
            covariates[each.name] = np.concatenate(
                [codes[:, place] for codes in parts if codes is not None]
            )
    future = len(covariates)
    values = np.concatenate([panel.tables[table].known(start, end) for table, start, end in spans])

    def channel(name: str) -> Values:
        return values[:, panel.channels.index(name)]

    past = [each.name for each in (known.past if known else ()) if each.type != "category"]
    return _Columns(
        covariates | {name: channel(name) for name in past},
        future,
        {name: channel(name) for name in targets},
        np.cumsum([span.end - span.start for span in spans]),
    )


def _copies_of(columns: _Columns, target: str, context: int, horizon: int) -> Iterator[_Copy]:
    """Copies of a target; covariates that copy it alone are not looked at in sums."""
    names = list(columns.covariates)
    if not names:
        return
    every = list(columns.covariates.values())
    alike = Alike(columns.targets[target], every, columns.ends, context + horizon - 1)
    copied = set()
    for place, name in enumerate(names):
        first = 1 - horizon if place < columns.future else 1
        copy = _copy(columns, alike, alike.alone(place), target, (name,), first, horizon)
        if copy is not None:
            copied.add(name)
            yield copy
    for place, name in enumerate(names[:-1]):
        if name in copied:
            continue
        shares = alike.pairs(place)
        for column, other in enumerate(names[place + 1 :]):
            # The steps at which the model reads both.
            first = 1 - horizon if place + 1 + column < columns.future else 1
            if other not in copied:
                pair = name, other
                copy = _copy(columns, alike, shares[:, column], target, pair, first, horizon)
                if copy is not None:
                    yield copy


def _copy(
    columns: _Columns,
    alike: Alike,
    shares: Values,
    target: str,
    names: tuple[str, ...],
    first: int,
    horizon: int,
) -> _Copy | None:
    """The copy that covariates make of a target from the step `first` on, if they do."""
    likely = alike.likely(shares, alike.steps >= first)
    if first <= 0 and len(names) == 1:
        # Rare events may lie beside the sample.
        likely = [0, *likely]
    for steps in likely:
        formula = _formula_at(columns, target, names, steps)
        if formula is None:
            continue
        if steps == 0:
            return _Copy(names, 0, formula)
        # In a series that repeats itself, earlier rows give the same values.
        earlier = alike.likely(shares, alike.steps < first)
        if any(_formula_at(columns, target, names, own) is not None for own in earlier):
            return None
        what = f"{' and '.join(names)} give{'s' * (len(names) == 1)} {target}"
        when = "later" if steps > 0 else f"before, and the horizon has {horizon}"
        return _Copy(names, steps, f"{what} {abs(steps)} step{'s' * (abs(steps) > 1)} {when}")
    return None


def _formula_at(columns: _Columns, target: str, names: Sequence[str], steps: int) -> str | None:
    """How rows `t` of covariates give rows `t + steps` of a target; None if they do not."""
    values = columns.targets[target]
    rows = np.arange(len(values))
    span = np.searchsorted(columns.ends, rows, side="right")
    starts = np.append(0, columns.ends)[span]
    rows = rows[(rows + steps >= starts) & (rows + steps < columns.ends[span])]
    values, inputs = values[rows + steps], {name: columns.covariates[name][rows] for name in names}
    if steps != 0:
        known = ~np.isnan(np.column_stack([values, *inputs.values()])).any(axis=1)
        several = [len(np.unique(each[known])) for each in (values, *inputs.values())]
        if known.sum() < _ROWS or min(several[0], max(several[1:])) < _DIFFERENT:
            return None
    return formula_of(target, values, inputs)
