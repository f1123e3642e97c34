"""Standardisation of each channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariates
from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel
from foretell.data.splits import Span

# Largest mean, in standard deviations: float32 keeps seven digits, and this mean takes four.
LARGEST_OFFSET = 1e4


def fit(panel: Panel, train: Iterable[Span]) -> Scaler:
    """Mean and population standard deviation of each channel; 1 for a constant channel.

    Args:
        panel: The data.
        train: The training rows, all with the same weight.
    """
    values = np.concatenate(
        [panel.tables[table].history(start, end) for table, start, end in train]
    )
    # Not `std == 0`: rounding gives a constant such as 0.1 a tiny deviation.
    constant = values.min(axis=0) == values.max(axis=0)
    std = values.std(axis=0)
    scaler = Scaler(
        mean=tuple(values.mean(axis=0).tolist()),
        std=tuple(np.where(constant, 1.0, std).tolist()),
    )
    if not constant.any():
        return scaler
    deviation = tuple(np.where(constant, 0.0, std).tolist())
    return scaler.model_copy(update={"level": scaler.mean, "deviation": deviation})


def typical_share(
    panel: Panel, train: Iterable[Span], scaler: Scaler, targets: Sequence[int] | None = None
) -> float:
    """The standard deviation of the median series, in standard deviations of all training rows.

    It is 1 for a single series, and the smallest over several targets. Constant series are ignored.

    Args:
        panel: The data.
        train: The training rows.
        scaler: Scaler of all training rows.
        targets: Places of the channels that count; all channels if None.
    """
    if len(panel.series) == 1:
        return 1.0
    at = slice(None) if targets is None else [*targets]
    rows: dict[str, list[NDArray[np.float64]]] = {}
    for table, start, end in train:
        rows.setdefault(panel.tables[table].series, []).append(
            panel.tables[table].history(start, end)[:, at]
        )
    std = np.array(scaler.std)[at]
    own = [np.concatenate(parts).std(axis=0) / std for parts in rows.values()]
    typical = [np.median(shares[shares > 0]) for shares in np.transpose(own) if (shares > 0).any()]
    return float(min(typical, default=1.0))


def offset_warning(
    scaler: Scaler, channels: Sequence[str], covariates: Covariates | None = None
) -> str | None:
    """A warning that names columns whose mean takes too many digits of float32, if any do."""
    known = scaler.training
    lossy = [
        name
        for name, mean, std, is_constant in zip(
            channels, known.mean, known.std, scaler.constant, strict=True
        )
        if abs(mean) > LARGEST_OFFSET * std and not is_constant
    ]
    lossy += [
        each.name
        for each in ((*covariates.future, *covariates.static) if covariates else ())
        # A constant has the deviation 1.
        if each.std != 1 and abs(each.mean or 0.0) > LARGEST_OFFSET * each.std
    ]
    if not lossy:
        return None
    return (
        f"{', '.join(lossy)}: the mean is more than {LARGEST_OFFSET:,.0f} times the standard "
        "deviation. A served model reads float32, which loses small changes of such a column; "
        "subtract the mean from the data"
    )


def standardise(values: NDArray[np.float64], scaler: Scaler) -> NDArray[np.float32]:
    """Convert `[time, channels]` from the user's units to standardised units."""
    standardised = (values - np.array(scaler.mean)) / np.array(scaler.std)
    return np.asarray(standardised, np.float32)
