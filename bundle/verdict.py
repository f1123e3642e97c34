"""The verdict on a model: its errors against the baselines'."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.bundle.results import Accuracy, TestResult
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.season import season_name

# An error below this, in standard deviations, counts as none, such as for a constant series.
_NO_ERROR = 1e-3


def baseline_names(frequency: Frequency) -> dict[str, str]:
    """The values that each baseline repeats, such as `the last day`, by field of `TestResult`."""
    return {
        "last_value": "the last value",
        "seasonal_naive": f"the last {season_name(frequency)}",
    }


def is_worth_nothing(result: TestResult) -> bool:
    """Whether a model is no better than any baseline in either error, and has errors at all."""
    if _served(result).mae < _NO_ERROR:
        return False
    against = filter(None, [result.last_value, result.seasonal_naive])
    return not any(any(_better(_served(result), one)) for one in against)


def verdict(result: TestResult, frequency: Frequency) -> str:
    """One line that compares a model with the baselines, in both errors.

    Args:
        result: Errors of the model and the baselines, over the same windows.
        frequency: Frequency of the steps, which names the season.
    """
    measured = {
        f"repeating {name}": getattr(result, field)
        for field, name in baseline_names(frequency).items()
    }
    return compare(_served(result), {name: one for name, one in measured.items() if one})


def compare(model: Accuracy, others: Mapping[str, Accuracy]) -> str:
    """One line that compares a model with others, given by their names."""
    return " and ".join(
        f"{_judgement(*_better(model, one))} than {name} (MSE {model.mse:.3g} against "
        f"{one.mse:.3g}, MAE {model.mae:.3g} against {one.mae:.3g})"
        for name, one in others.items()
    )


def _served(result: TestResult) -> Accuracy:
    return result.onnx or result.model


def _better(model: Accuracy, baseline: Accuracy) -> tuple[bool, bool]:
    """Whether the model is better in squared and in absolute error; NaN is not better."""
    return model.mse < baseline.mse, model.mae < baseline.mae


def _judgement(squared: bool, absolute: bool) -> str:
    if squared == absolute:
        return "better" if squared else "no better"
    return "better in MSE alone" if squared else "better in MAE alone"
