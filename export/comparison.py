"""Compare graphs with the reference by `foretell.export.rules`; this needs no torch.

Attention maps may be larger than everything else together. So windows are compared in batches, and
only errors, forecasts and choices are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.attention import AttentionStage
from foretell.bundle.distribution import Distribution
from foretell.bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from foretell.bundle.measure import relative_error
from foretell.bundle.results import Check, Precision
from foretell.export.choices import (
    Errors,
    Mask,
    Outputs,
    attention_error,
    choices_differ,
    headroom,
    margin_error,
    score_errors,
)
from foretell.export.errors import ExportError
from foretell.export.rules import LEAST_COMPARED, LEAST_KINDS, ROUNDING, RULES
from foretell.export.window_set import Floats, WindowSet

_DISTRIBUTION = "distribution"
# Scale of the errors of parameters that are not values: an error of log odds is a ratio of odds.
_OWN_SIZE = {"df": 1.0, "total_count": 1e-6, "logits": 1.0}
# In standard deviations of the training rows: a distribution may be narrower than rounding.
_LEAST_SCALE = 0.01
# Windows of a batch; the largest batch is smaller if fewer windows fit.
SMALL = (1, 3)
LARGEST = 64


@dataclass(frozen=True)
class Reference:
    """Outputs of the plain model on a set of windows, by output name of `explain.onnx`.

    Attributes:
        outputs: Each `[batch, …]`.
    """

    outputs: Outputs

    @property
    def forecast(self) -> NDArray[np.float64]:
        """`[batch, horizon, targets]` in the user's units."""
        return self.outputs["forecast"].astype(np.float64)

    def without_maps(self, stages: Sequence[AttentionStage]) -> Reference:
        """Outputs that are compared on adversarial windows: the forecast and the choices."""
        choices = (choice for stage in stages for choice in stage.choices)
        kept = {
            "forecast",
            _DISTRIBUTION,
            *(name for each in choices for name in (each.chosen, each.scores)),
        }
        return Reference({name: each for name, each in self.outputs.items() if name in kept})

    def take(self, rows: NDArray[np.int64] | slice) -> Reference:
        """Outputs of some of the windows."""
        return Reference({name: output[rows] for name, output in self.outputs.items()})


@dataclass(frozen=True)
class Case:
    """Windows of a kind, with their reference outputs.

    Attributes:
        windows: Windows of the kind.
        exact: Outputs of the plain model in float64.
        rounded: Outputs of the plain model in torch's float32; None for natural windows, unless a
            graph errs by more than the tolerance.
    """

    windows: WindowSet
    exact: Reference
    rounded: Reference | None = None

    def batches(self, size: int) -> Iterator[Case]:
        """All windows in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self.windows), size):
            rows = slice(start, start + size)
            rounded = None if self.rounded is None else self.rounded.take(rows)
            yield Case(self.windows.take(rows), self.exact.take(rows), rounded)


class Runner(Protocol):
    """Runs a graph."""

    def run(self, inputs: Mapping[str, Floats]) -> Outputs:
        """Run a batch of inputs by name; outputs by name."""
        ...


@dataclass(frozen=True)
class Natural:
    """Results of the comparison on natural windows.

    Attributes:
        checks: Checks of forecasts, attention and choices.
        forecast: `[batch, horizon, targets]` float64, the reference forecasts.
        conditioning: `[batch]`, the headroom of every window; -1 for windows that were not
            compared.
        largest_error: Largest error of the forecasts that were compared.
        margin_error: Largest error of a margin in the windows that were compared; None without
            choices.
        deviations: `[targets]`, the largest error of each forecast that was compared, in units of
            the comparison's scale.
    """

    checks: list[Check]
    forecast: NDArray[np.float64]
    conditioning: Errors
    largest_error: float
    margin_error: float | None
    deviations: NDArray[np.float64]


class Comparison:
    """Comparison of both graphs of a model with the reference.

    Args:
        stages: Attention stages of the model.
        scale: `[targets]`, `foretell.bundle.measure.deviations`.
        distribution: Distribution that the model forecasts for each step besides the mean, if any.
        precision: Precision of the graphs.
        graph: Runs the forecast graph.
        explain_graph: Runs the explain graph.
        largest: Windows of the largest batch, which is the size of the cases.

    Attributes:
        rules: Limits of the differences.
    """

    def __init__(
        self,
        stages: Sequence[AttentionStage],
        scale: Errors,
        distribution: Distribution | None,
        precision: Precision,
        graph: Runner,
        explain_graph: Runner,
        largest: int = LARGEST,
    ) -> None:
        self.rules = RULES[precision]
        self._stages = stages
        # A stage without a map that chooses nothing has nothing to compare.
        self._shown = [stage for stage in stages if stage.form != "none" or stage.choices]
        choices = [choice for stage in stages for choice in stage.choices]
        self._chooses = bool(choices)
        self._kept = ("forecast", _DISTRIBUTION, *(choice.chosen for choice in choices))
        self._scale = scale
        self._least = [] if distribution is None else _least(distribution, scale)
        self._graph = graph
        self._explain_graph = explain_graph
        self._largest = largest

    def natural(self, windows: WindowSet, cases: Iterable[Case]) -> Natural:
        """Compare attention and forecasts, in batches of every size and alone against in a batch.

        Args:
            windows: All natural windows.
            cases: Batches of these windows, with their references. Where these include torch's
                float32 and it errs as well, a graph may err by more.

        Raises:
            ExportError: too few windows are compared, a forecast is not finite, or an output is
                missing.
        """
        # `map` frees a case before it takes the next one.
        looks = list(map(self._look, cases))
        exact = Reference(_joined([kept for _, kept in looks]))
        clear, differ, margin, deviation, error, *others = map(
            np.concatenate, zip(*(errors for errors, _ in looks), strict=True)
        )
        count = len(self._shown)
        attention, (own, *own_attention) = others[:count], others[count:]
        name = f"{windows.name} windows"
        compared = self._compared(clear, differ)
        if self.rules.other_choices is None and compared.mean() < LEAST_COMPARED:
            raise ExportError(
                f"{(~compared).sum()} of {len(windows)} {name} are ill-conditioned, more than "
                "half: rounding decides what the attention chooses, such as the lags of an "
                "auto-correlation"
            )
        allowed = self._allowed(self.rules.forecast, own[compared])
        forecasts = [
            *self._forecasts(windows, exact, compared, allowed),
            _check(f"{EXPLAIN_GRAPH}, forecast, {name}", error, compared, allowed),
        ]
        checks = list(forecasts)
        for stage, weight, of_torch in zip(self._shown, attention, own_attention, strict=True):
            most = self._allowed(self.rules.attention, of_torch[compared])
            checks.append(_check(f"{EXPLAIN_GRAPH}, {stage.name}, {name}", weight, compared, most))
        if self._chooses and self.rules.other_choices is not None:
            what = f"share with other choices, {name}"
            share = float(differ.mean())
            checks.append(_share(what, share, self.rules.other_choices, windows=len(windows)))
        return Natural(
            checks=checks,
            forecast=exact.forecast,
            conditioning=np.where(compared, clear, -1),
            largest_error=max(check.max_error for check in forecasts),
            margin_error=float(margin[compared].max(initial=0)) if self._chooses else None,
            deviations=deviation[compared].max(axis=0, initial=0),
        )

    def adversarial(self, kinds: Iterable[tuple[str, Iterable[Case]]]) -> list[Check]:
        """Compare forecasts, and in float32 also choices, on windows far outside of the data.

        Args:
            kinds: Name and windows in batches of each kind.

        Returns:
            The checks of every kind, and one of the share of kinds without a window to compare.

        Raises:
            ExportError: a forecast is not finite, or an output is missing.
        """
        found = [self._adversarial(name, cases) for name, cases in kinds]
        checks = [check for checks in found for check in checks]
        if found:
            forecasts = [forecast for forecast, *_ in found]
            checks.append(
                _share(
                    "share of adversarial kinds that were not compared",
                    float(np.mean([check.windows == 0 for check in forecasts])),
                    1 - LEAST_KINDS,
                    windows=sum(check.windows for check in forecasts),
                    excluded=sum(check.excluded for check in forecasts),
                )
            )
        return checks

    def _look(self, case: Case) -> tuple[list[NDArray[Any]], Outputs]:
        """Measures of natural windows, and the outputs of the reference that are still needed."""
        found, exact = self._explain(case.windows), case.exact.outputs
        errors = [
            headroom(self._stages, found, exact),
            choices_differ(self._stages, found, exact),
            margin_error(self._stages, found, exact),
            np.abs(found["forecast"].astype(np.float64) - case.exact.forecast).max(axis=1)
            / self._scale,
            *self._errors(found, case.exact),
        ]
        if case.rounded is None:
            errors += [np.zeros(len(case.windows))] * (1 + len(self._shown))
        else:
            of_torch = case.rounded.outputs
            steady = ~choices_differ(self._stages, of_torch, exact)
            own = self._errors(of_torch, case.exact)
            errors += [np.where(steady, error, 0) for error in own]
        return errors, {name: exact[name] for name in self._kept if name in exact}

    def _errors(self, found: Outputs, exact: Reference) -> list[Errors]:
        """Errors of the forecast and of each stage that is shown."""
        attention = (attention_error(stage, found, exact.outputs) for stage in self._shown)
        return [self._error(found, exact), *attention]

    def _allowed(self, least: float, of_torch: Errors) -> float:
        """Tolerance on natural windows, given the errors of torch's float32."""
        own = float(of_torch.max(initial=0))
        return max(least, min(self.rules.slack * own, ROUNDING))

    def _forecasts(
        self, windows: WindowSet, exact: Reference, compared: Mask, allowed: float
    ) -> list[Check]:
        """Checks of forecasts in batches of every size, and alone against in a batch."""
        name = f"{windows.name} windows"
        sizes = sorted({*SMALL, max(*SMALL, self._largest)})
        forecasts, counted, checks = {}, dict.fromkeys(sizes, compared), []
        for size in sizes:
            parts = windows.batches(size)
            forecasts[size] = _joined([self._graph.run(part.inputs) for part in parts])
            if self._chooses and self.rules.other_choices is not None and size != self._largest:
                # The last digit, and with it the choice, may depend on the size of the batch.
                runs = (self._explain(part) for part in windows.batches(size))
                kept = [{name: run[name] for name in self._kept if name in run} for run in runs]
                chosen = _joined(kept)
                counted[size] = ~choices_differ(self._stages, chosen, exact.outputs)
            error = self._error(forecasts[size], exact)
            what = f"{FORECAST_GRAPH}, batch {size}, {name}"
            checks.append(_check(what, error, counted[size], allowed))
        alone, among = sizes[0], sizes[-1]
        error = self._error(forecasts[among], Reference(forecasts[alone]))
        what = f"{FORECAST_GRAPH}, batch {alone} against {among}, {name}"
        return [*checks, _check(what, error, counted[alone] & counted[among], allowed)]

    def _adversarial(self, kind: str, cases: Iterable[Case]) -> list[Check]:
        """Checks of the forecast and, in float32, of the choices."""
        compared, differ, error, own = map(
            np.concatenate, zip(*map(self._look_far, cases), strict=True)
        )
        name, rules = f"{kind} windows", self.rules
        allowed = max(rules.forecast, rules.slack * float(own.max()))
        checks = [_check(f"{FORECAST_GRAPH}, {name}", error, compared, allowed)]
        if rules.other_choices is None and self._chooses and compared.any():
            checks.append(_check(f"choices, {name}", differ.astype(float), compared, 0.0))
        return checks

    def _look_far(self, case: Case) -> tuple[NDArray[Any], ...]:
        """Measures of adversarial windows."""
        found, exact = self._explain(case.windows), case.exact.outputs
        rounded = case.rounded or case.exact
        differ = choices_differ(self._stages, found, exact)
        # Where torch's float32 chooses differently, its error is more than rounding.
        steady = ~choices_differ(self._stages, rounded.outputs, exact)
        of_torch = score_errors(self._stages, rounded.outputs, exact)
        allowed = [self.rules.slack * error for error in of_torch]
        compared = self._compared(headroom(self._stages, found, exact, allowed), differ)
        if self.rules.other_choices is None:
            compared &= steady
        own = self._error(rounded.outputs, case.exact)
        error = self._error(self._graph.run(case.windows.inputs), case.exact)
        return compared, differ, error, np.where(compared & steady, own, 0)

    def _compared(self, conditioning: Errors, differ: Mask) -> Mask:
        """Whether each window is compared, `[batch]`."""
        return conditioning > 1 if self.rules.other_choices is None else ~differ

    def _explain(self, windows: WindowSet) -> Outputs:
        """All outputs of the explain graph for a batch."""
        found = self._explain_graph.run(windows.inputs)
        finite = np.isfinite(found["forecast"].astype(np.float64)).all(axis=(1, 2))
        if not finite.all():
            raise ExportError(
                f"{(~finite).sum()} of {len(windows)} {windows.name} windows have a forecast that "
                "is not finite"
            )
        return found

    def _error(self, found: Outputs, exact: Reference) -> Errors:
        """Largest error of the forecast and of the parameters of its distribution, `[batch]`."""
        forecast = found["forecast"].astype(np.float64)
        error = relative_error(forecast, exact.forecast, self._scale)
        if _DISTRIBUTION not in exact.outputs:
            return error
        for place, least in enumerate(self._least):
            own, wanted = (
                each[_DISTRIBUTION][..., place].astype(np.float64)
                for each in (found, exact.outputs)
            )
            error = np.maximum(error, relative_error(own, wanted, least))
        return error


def _least(distribution: Distribution, scale: Errors) -> list[Errors]:
    """Scale `[targets]` of errors of each parameter, where the parameter itself is smaller."""
    # These parameters do not depend on the scale of the values.
    own = {name: np.full_like(scale, least) for name, least in _OWN_SIZE.items()}
    own["scale"] = _LEAST_SCALE * scale
    return [own.get(name, scale) for name in distribution.parameters]


def _joined(parts: Sequence[Outputs]) -> Outputs:
    """Outputs of batches as outputs of one batch."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check(name: str, errors: Errors, compared: Mask, tolerance: float) -> Check:
    """A check; its name says so if no window is compared."""
    counted = errors[compared] if compared.any() else np.zeros(1)
    return Check(
        name=name if compared.any() else f"{name}: not compared",
        windows=int(compared.sum()),
        excluded=int((~compared).sum()),
        max_error=float(counted.max()),
        median_error=float(np.median(counted)),
        tolerance=tolerance,
    )


def _share(name: str, share: float, tolerance: float, *, windows: int, excluded: int = 0) -> Check:
    """A check of a share, not of an error."""
    return Check(
        name=name,
        windows=windows,
        excluded=excluded,
        max_error=share,
        median_error=share,
        tolerance=tolerance,
    )
