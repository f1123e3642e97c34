"""Comparing graphs with what they must give, by the rules of `foretell.export.rules`.

It needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.comparison import relative_error
from foretell.bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from foretell.bundle.manifest import AttentionStage, Check, Precision, Scaler
from foretell.export.errors import ExportError
from foretell.export.lag_errors import Errors, Mask, Outputs, attention_error, headroom, lags_differ
from foretell.export.rules import LEAST_COMPARED, RULES
from foretell.export.window_set import Floats, WindowSet

BATCHES = (1, 3, 64)
_LARGEST = BATCHES[-1]


@dataclass(frozen=True)
class Reference:
    """Outputs of the plain model on a set of windows, by output name of `explain.onnx`.

    Attributes:
        outputs: Each `[batch, …]`.
    """

    outputs: dict[str, NDArray[np.generic]]

    @property
    def forecast(self) -> NDArray[np.float64]:
        """`[batch, horizon, channels]` in the user's units."""
        return self.outputs["forecast"].astype(np.float64)


class Runner(Protocol):
    """Runs a graph."""

    def run(self, inputs: Sequence[Floats | None]) -> Outputs:
        """Run a batch: history and, if the graph has them, both calendars; outputs by name."""

    def forecast(self, *inputs: Floats | None) -> Floats:
        """The forecast `[batch, horizon, channels]` alone."""


class Comparison:
    """Both graphs of a model next to what they must give.

    Args:
        stages: Of the model.
        scaler: Its standardisation.
        precision: Of the graphs.
        graph: Runs that of the forecast.
        explain_graph: Runs that of the forecast and its attention.

    Attributes:
        rules: What may differ.
    """

    def __init__(
        self,
        stages: Sequence[AttentionStage],
        scaler: Scaler,
        precision: Precision,
        graph: Runner,
        explain_graph: Runner,
    ) -> None:
        self.rules = RULES[precision]
        self._stages = stages
        self._scale = np.array(scaler.std)
        self._graph = graph
        self._explain_graph = explain_graph

    def explain(self, windows: WindowSet, batch: int = _LARGEST) -> Outputs:
        """All outputs of the explain graph.

        Raises:
            ExportError: a forecast is not finite.
        """
        parts = [self._explain_graph.run(part.inputs) for part in windows.batches(batch)]
        explained = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        finite = np.isfinite(explained["forecast"].astype(np.float64)).all(axis=(1, 2))
        if not finite.all():
            raise ExportError(
                f"{(~finite).sum()} of {len(windows)} {windows.name} windows have a forecast that "
                "is not finite"
            )
        return explained

    def compared(self, explained: Outputs, reference: Reference) -> Mask:
        """Which windows are compared, `[batch]`."""
        if self.rules.other_lags is None:
            clear: Mask = headroom(self._stages, explained, reference.outputs) > 1
            return clear
        return ~lags_differ(self._stages, explained, reference.outputs)

    def compared_enough(self, windows: WindowSet, explained: Outputs, reference: Reference) -> Mask:
        """As `compared`, of natural windows.

        Raises:
            ExportError: these are too few of them.
        """
        compared = self.compared(explained, reference)
        if self.rules.other_lags is None and compared.mean() < LEAST_COMPARED:
            raise ExportError(
                f"{(~compared).sum()} of {len(windows)} {windows.name} windows are "
                "ill-conditioned, more than half: rounding decides which lags the auto-correlation "
                "keeps"
            )
        return compared

    def forecasts(
        self, windows: WindowSet, reference: Reference, explained: Outputs
    ) -> list[Check]:
        """Forecasts in batches of every size, and alone against among others."""
        name, allowed = f"{windows.name} windows", self.rules.forecast
        forecasts, compared, checks = {}, {}, []
        for size in BATCHES:
            parts = [self._graph.forecast(*part.inputs) for part in windows.batches(size)]
            forecasts[size] = np.concatenate(parts)
            own = explained
            if self.rules.other_lags is not None and size != _LARGEST:
                # The last digit, and with it the lags, may depend on the size of the batch.
                own = self.explain(windows, size)
            compared[size] = self.compared(own, reference)
            error = self._error(forecasts[size], reference)
            what = f"{FORECAST_GRAPH}, batch {size}, {name}"
            checks.append(_check(what, error, compared[size], allowed))
        among = relative_error(forecasts[_LARGEST], forecasts[1], self._scale)
        what = f"{FORECAST_GRAPH}, alone against among {_LARGEST}, {name}"
        checks.append(_check(what, among, compared[1] & compared[_LARGEST], allowed))
        what = f"{EXPLAIN_GRAPH}, forecast, {name}"
        error = self._error(explained["forecast"], reference)
        checks.append(_check(what, error, compared[_LARGEST], allowed))
        return checks

    def attention(
        self, windows: WindowSet, reference: Reference, explained: Outputs
    ) -> list[Check]:
        """The attention of every stage, and how many windows keep the lags where not all must."""
        stages, name = self._stages, f"{windows.name} windows"
        compared = self.compared(explained, reference)
        checks = [
            _check(
                f"{EXPLAIN_GRAPH}, {stage.name}, {name}",
                attention_error(stage, explained, reference.outputs),
                compared,
                self.rules.attention,
            )
            for stage in stages
        ]
        has_lags = any(stage.kind == "autocorrelation" for stage in stages)
        if has_lags and self.rules.other_lags is not None:
            share = float(lags_differ(stages, explained, reference.outputs).mean())
            checks.append(
                Check(
                    name=f"share with other lags, {name}",
                    windows=len(windows),
                    max_error=share,
                    median_error=share,
                    tolerance=self.rules.other_lags,
                )
            )
        return checks

    def adversarial(
        self, windows: WindowSet, reference: Reference, rounded: Reference
    ) -> list[Check]:
        """The forecast, and in float32 the lags of all auto-correlations.

        Args:
            windows: Far outside of the data.
            reference: What they must give.
            rounded: What torch gives in float32.
        """
        stages, rules = self._stages, self.rules
        explained = self.explain(windows)
        compared = self.compared(explained, reference)
        # Where torch keeps other lags itself, its error says nothing of rounding.
        usual = compared & ~lags_differ(stages, rounded.outputs, reference.outputs)
        own = self._error(rounded.outputs["forecast"], reference)[usual].max(initial=0)
        checks = [
            _check(
                f"{FORECAST_GRAPH}, {windows.name} windows",
                self._error(self._graph.forecast(*windows.inputs), reference),
                compared,
                max(rules.forecast, rules.slack * float(own)),
            )
        ]
        if rules.other_lags is None and any(stage.kind == "autocorrelation" for stage in stages):
            differ = lags_differ(stages, explained, reference.outputs).astype(np.float64)
            checks.append(_check(f"lag sets, {windows.name} windows", differ, compared, 0.0))
        return checks

    def _error(self, forecast: NDArray[np.generic], reference: Reference) -> Errors:
        return relative_error(forecast.astype(np.float64), reference.forecast, self._scale)


def _check(name: str, errors: Errors, compared: Mask, tolerance: float) -> Check:
    counted = errors[compared] if compared.any() else np.zeros(1)
    return Check(
        name=name,
        windows=int(compared.sum()),
        excluded=int((~compared).sum()),
        max_error=float(counted.max()),
        median_error=float(np.median(counted)),
        tolerance=tolerance,
    )
