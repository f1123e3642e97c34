"""Results of the test, the verification and the calibration of a model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from foretell.bundle.attention import Positive
from foretell.bundle.part import Part

Precision = Literal["float32", "float16", "bfloat16"]
CalibrationMethod = Literal["scaled_split_conformal", "scaled_rolling_refits"]


class Accuracy(Part):
    """Mean errors over all windows of a split, in standard deviations of the training rows."""

    mse: float
    mae: float


class TestResult(Part):
    """Accuracy on the test split, next to the baselines.

    Attributes:
        windows: Number of test windows.
        model: Accuracy of the model in torch.
        onnx: Accuracy of the exported graph in onnxruntime, on the same windows.
        last_value: Accuracy of repeating the last value of the history.
        seasonal_naive: Accuracy of repeating the last season of the history.
        season: Number of steps in a season.
        overlaps: Whether training rows of one series lie after test rows of another.
    """

    __test__ = False

    windows: Positive
    model: Accuracy
    onnx: Accuracy | None = None
    last_value: Accuracy
    seasonal_naive: Accuracy | None = None
    season: Positive | None = None
    overlaps: bool = False


class Check(Part):
    """One comparison of the exported graph with torch.

    Attributes:
        name: Name of the check.
        windows: Number of windows compared.
        excluded: Number of ill-conditioned windows left out: rounding alone decides what a
            mechanism chooses there, such as the lags that it keeps.
        max_error: Largest error over the windows, by `foretell.bundle.measure`.
        median_error: Median error over the windows.
        tolerance: The largest error that passes.
    """

    name: str
    windows: Annotated[int, Field(ge=0)]
    excluded: Annotated[int, Field(ge=0)] = 0
    max_error: float
    median_error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether every window is within the tolerance."""
        return self.max_error <= self.tolerance


class Verification(Part):
    """The comparisons made at export. A bundle is written only if all of them pass.

    Attributes:
        reference: The program that the graphs were compared with.
        provider: The execution provider that ran the graphs.
        emulates: The half precision that the provider emulated, in float32 with every result
            rounded; None if it ran the graphs unchanged.
        checks: The comparisons.
        deviations: Largest forecast error of each target on natural windows, in standard deviations
            of its training rows; empty in bundles that do not record it.
    """

    reference: str
    provider: str
    emulates: Precision | None = None
    checks: tuple[Check, ...]
    deviations: tuple[float, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


class Coverage(Part):
    """How often actual values of the test split lay in an interval.

    Attributes:
        level: The nominal share, such as 0.8 between the quantiles 0.1 and 0.9.
        first_step: The first step ahead that counts, from 1.
        last_step: The last step ahead that counts.
        windows: Number of test windows.
        coverage: The share of values in the interval, over windows, steps and channels.
        width: Mean width of the interval, in standard deviations of the training rows.
    """

    level: Annotated[float, Field(gt=0, lt=1)]
    first_step: Positive
    last_step: Positive
    windows: Positive
    coverage: Annotated[float, Field(ge=0, le=1)]
    width: Annotated[float, Field(ge=0)]


class CalibrationReport(Part):
    """How the quantiles were calibrated, and how well they did in the test split.

    Attributes:
        method: Order statistics of signed errors, each divided by the standard deviation of its
            window's history. The errors are the model's in the validation split. Where that is too
            short, they are those of refits on earlier rows, in the rows that followed.
        floor: The smallest deviation of a history, in standard deviations of the training rows.
        steps: Number of steps ahead that have quantiles.
        windows: Number of windows behind each pass over the horizon. From the second pass on, the
            model continues its own forecasts.
        disjoint: Number of windows of each pass whose forecasts do not overlap.
        coverage: Coverage for each pass and level; empty without a test split.
    """

    method: CalibrationMethod = "scaled_split_conformal"
    floor: Annotated[float, Field(gt=0)]
    steps: Positive
    windows: Annotated[tuple[Positive, ...], Field(min_length=1)]
    disjoint: tuple[Positive, ...]
    coverage: tuple[Coverage, ...]
