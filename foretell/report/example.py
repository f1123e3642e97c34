"""What a bundle's model makes of the window that it carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretell.bundle import calibration, example, layout
from foretell.bundle.manifest import Manifest
from foretell.data.table import Table
from foretell.evidence import Evidence, find_evidence
from foretell.export.runtime import Graph
from foretell.forecast_file import Forecast
from foretell.service.engine.intervals import Intervals
from foretell.service.forecast.attention import describe, select
from foretell.service.forecast.requests import AttentionOptions
from foretell.service.forecast.times import timeline_from
from foretell.timeaxis.timestamps import parse, render

LEVELS = (0.025, 0.1, 0.9, 0.975)
# Weights of all stages together; more are no picture.
_MOST = 4_000_000


def run_example(folder: Path, manifest: Manifest) -> tuple[Forecast, list[Evidence]] | None:
    """The forecast of the example with its bands, next to what followed, and what was looked at.

    Returns:
        None of a bundle that carries no example.

    Raises:
        BundleError: the example, or the calibration, cannot be read.
    """
    found = example.read(folder, manifest)
    if found is None:
        return None
    frequency, context = manifest.step, manifest.context
    history = found.history[-context:]
    walls = np.array([parse(text).wall for text in found.timestamps[-context:]], "M8[us]")
    ahead = frequency.steps_from(walls[-1], manifest.horizon + 1)[1:]
    inputs = [history[None].astype(np.float32)]
    if manifest.calendar is not None:
        inputs += [manifest.calendar.encode(times)[None] for times in (walls, ahead)]
    outputs = Graph(folder / layout.EXPLAIN_GRAPH).run(inputs)
    values = outputs["forecast"].astype(np.float32)
    intervals = Intervals(manifest, calibration.read(folder, manifest))
    levels = _levels(manifest)
    quantiles = intervals.quantiles(inputs[0], values, levels) if levels else ()
    forecast = Forecast(
        model=f"{manifest.name}@{manifest.version}",
        series=found.series,
        history=Table(walls, history, manifest.channels, frequency),
        times=render(ahead, None),
        targets=manifest.targets,
        values=values[0].astype(np.float64),
        quantiles={level: each[0] for level, each in zip(levels, quantiles, strict=True)},
        actual=found.actual,
    )
    start = render(walls[:1], None)[0]
    selection = select(AttentionOptions(heads="mean"), manifest, "") if manifest.attention else None
    if selection is None or selection.values(len(manifest.channels)) > _MOST:
        return forecast, []
    timeline = timeline_from(start, None, frequency, context, "")
    first = {name: outputs[name][0] for name in selection.outputs}
    stages = describe(selection, first, timeline, manifest, None)
    return forecast, find_evidence(stages, forecast.times[0])


def _levels(manifest: Manifest) -> tuple[float, ...]:
    report = manifest.calibration
    if report is None:
        return ()
    low, high = calibration.bounds(report.windows[0])
    return tuple(level for level in LEVELS if low <= level <= high)
