"""Requirements of training on counts for data and model."""

from __future__ import annotations

import numpy as np

from foretell.bundle.bounds import shown
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.models.config import ForecasterConfig
from foretell.models.heads import HEADS
from foretell.training.errors import TrainingError

# This norm divides a window and subtracts nothing.
_NORM = "magnitude"
# Relative rounding error that earlier arithmetic may have left in a whole number.
_ROUNDING = 1e-6


def usual_norm(head: object) -> str:
    """The default window norm, since levels move between training and use."""
    return _NORM if head in HEADS and HEADS[str(head)].is_of_counts else "mean"


def check_counts(config: ForecasterConfig, panel: Panel) -> None:
    """Refuse data whose targets are not whole numbers from 0 on.

    Args:
        config: Configuration of a model with a head of counts.
        panel: All rows, including those of the test split.

    Raises:
        DataError: names the channel, the number of rows that are not counts, and the first one.
    """
    for column in config.targets or range(config.channels):
        values = np.concatenate([table.known()[:, column] for table in panel.tables])
        whole = np.rint(values)
        fractional = np.abs(values - whole) > _ROUNDING * np.maximum(np.abs(values), 1)
        for what, rows in (("negative", whole < 0), ("not whole numbers", fractional)):
            if rows.any():
                first = int(rows.argmax())
                raise DataError(
                    f"channel {panel.channels[column]!r}: {rows.sum()} of {len(panel)} rows are "
                    f"{what}, the first at {panel.time_of(first)} ({shown(values[first])}); "
                    f"head {config.head} needs counts: correct them, forecast other channels "
                    "with --target, or take head student-t or normal"
                )


def check_norm(config: ForecasterConfig) -> None:
    """Refuse window norms with which the forecasts of a head of counts miss their level.

    Raises:
        TrainingError: names the setting.
    """
    head = config.build_head()
    if head is None or head.adds_centre:
        return
    norms = {
        "window_norm": next((name for name in _parts(config.window_norm) if name), None),
        "scaling": getattr(config, "scaling", None),
    }
    for setting, norm in norms.items():
        if norm not in (None, _NORM):
            raise TrainingError(
                f"{setting}: {norm} subtracts the level of a window, which head {config.head} "
                f"does not give back: take {_NORM}, or head neuralforecast-{config.head}"
            )
    if set(norms.values()) == {None} and "logits" in head.described.parameters:
        raise TrainingError(
            f"window_norm: none leaves counts unscaled, and head {config.head} takes the "
            f"exponential of its output: take {_NORM}"
        )


def _parts(norm: str | None) -> list[str]:
    """The nested window norms, without identities."""
    return [name for name in (norm or "").split("+") if name != "identity"]
