"""The origin of a bundle: its checkpoint, and the data that the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from foretell.bundle.checksums import sha256
from foretell.data.panel import Panel
from foretell.data.source import DataSource
from foretell.data.splits import Spans
from foretell.export.data_windows import split_of
from foretell.models.checkpoint import WEIGHTS, CheckpointInfo, TrainingRecord
from foretell.timeaxis.timestamps import shown


@dataclass(frozen=True)
class Origin:
    """The origin of a bundle.

    Attributes:
        weights: sha256 of the checkpoint's weights.
        training: Record of the training; None for an imported checkpoint.
        data: Data that the model was trained on, if known.
        periods: First and last time of the rows of each split, by name; empty without the data.
            Rows before validation and test that are only read as context do not count.
    """

    weights: str
    training: TrainingRecord | None
    data: DataSource | None
    periods: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, checkpoint: Path, info: CheckpointInfo, panel: Panel | None) -> Self:
        """The origin of a bundle that is exported from a checkpoint.

        Args:
            checkpoint: Folder of the checkpoint.
            info: Its description.
            panel: Data of the export, if any.
        """
        split, periods = None if panel is None else split_of(info, panel), {}
        if panel is not None and split is not None:
            context = info.config.context
            periods = {
                "training": _period(panel, split.train, 0),
                "validation": _period(panel, split.validation, context),
                "test": _period(panel, split.test, context),
            }
        data = DataSource.recorded(info.data)
        return cls(sha256(checkpoint / WEIGHTS), info.training, data, periods)


def _period(panel: Panel, spans: Spans, skipped: int) -> tuple[str, str]:
    """First and last time of the rows of some spans, without the first rows of each."""
    times = [panel.tables[place].timestamps[first + skipped : end] for place, first, end in spans]
    known = [each for each in times if len(each)]
    return shown(min(each[0] for each in known)), shown(max(each[-1] for each in known))
