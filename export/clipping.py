"""The bounds of channels at the end of a graph: the graph without them, and a check of them.

The rules compare the forecast before its bounds, which would hide errors of a forecast that they
move. The bounds have a check of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx

from foretell.bundle.bounds import Floats, Limits
from foretell.bundle.measure import relative_error
from foretell.bundle.results import Check
from foretell.export.comparison import Runner
from foretell.export.window_set import WindowSet

_FORECAST = "forecast"
_BOUNDS = ("Max", "Min")


def without_bounds(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Copy of a graph whose forecast is not moved to the bounds."""
    nodes = graph.graph.node
    constants = {weight.name for weight in graph.graph.initializer}
    makers = {name: node for node in nodes for name in node.output}
    last = makers[_FORECAST]
    removed = []
    while last.op_type in _BOUNDS:
        removed.append(last)
        last = next(makers[name] for name in last.input if name in makers.keys() - constants)
    free = onnx.ModelProto()
    free.CopyFrom(graph)
    kept = [node for node in nodes if node not in removed]
    free.graph.ClearField("node")
    free.graph.node.extend(kept)
    for node in free.graph.node:
        if node.output == last.output:
            node.output[0] = _FORECAST
    return free


def check_limits(
    name: str,
    graph: Runner,
    free: Runner,
    limits: Limits,
    windows: Iterable[WindowSet],
    scale: Floats,
    tolerance: float,
) -> Check:
    """Check that a graph forecasts the same as without its bounds, moved to them.

    Args:
        name: Name of the graph.
        graph: Runs the graph.
        free: Runs the graph without its bounds.
        limits: Limits of forecasts.
        windows: Windows in batches.
        scale: `[targets]`, standard deviation of each in training.
        tolerance: The largest error that is allowed.

    Returns:
        The check; its name says so if no forecast reaches a bound.
    """
    errors, moved = [], False
    for batch in windows:
        before = np.asarray(free.run(batch.inputs)[_FORECAST], np.float32)
        after = np.asarray(graph.run(batch.inputs)[_FORECAST], np.float32)
        wanted = limits.apply(before)
        moved |= bool((wanted != before).any())
        errors.append(relative_error(after, wanted, scale))
    found = np.concatenate(errors)
    return Check(
        name=f"{name}, bounds" if moved else f"{name}, bounds: none reached",
        windows=len(found),
        max_error=float(found.max()),
        median_error=float(np.median(found)),
        tolerance=tolerance,
    )
