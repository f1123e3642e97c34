import math

import pytest

from foretell.bundle.manifest import Accuracy, TestResult
from foretell.bundle.verdict import baseline_names, is_worth_nothing, verdict
from foretell.timeaxis.frequency import Frequency

HOURLY = Frequency.parse("h")
LAST = Accuracy(mse=1.29, mae=0.71)
DAY = Accuracy(mse=0.51, mae=0.5)


def result(mse: float, mae: float, seasonal: Accuracy | None = DAY) -> TestResult:
    model = Accuracy(mse=mse, mae=mae)
    season = None if seasonal is None else 24
    return TestResult(
        windows=9, model=model, last_value=LAST, seasonal_naive=seasonal, season=season
    )


@pytest.mark.parametrize(
    ("mse", "mae", "last", "day", "nothing"),
    [
        (0.38, 0.4, "better", "better", False),
        (0.6, 0.4, "better", "better in MAE alone", False),
        (0.5, 0.9, "better in MSE alone", "better in MSE alone", False),
        (0.6, 0.6, "better", "no better", False),
        (1.29, 0.71, "no better", "no better", True),
        (math.nan, math.nan, "no better", "no better", True),
    ],
)
def test_both_errors_are_judged(mse: float, mae: float, last: str, day: str, nothing: bool) -> None:
    found = result(mse, mae)
    assert verdict(found, HOURLY) == (
        f"{last} than repeating the last value (MSE {mse:.3g} against 1.29, MAE {mae:.3g} against "
        f"0.71) and {day} than repeating the last day (MSE {mse:.3g} against 0.51, MAE {mae:.3g} "
        "against 0.5)"
    )
    assert is_worth_nothing(found) is nothing


def test_without_a_season_the_last_value_alone_counts() -> None:
    found = result(1.5, 0.9, None)
    assert is_worth_nothing(found)
    assert verdict(found, HOURLY).startswith("no better than repeating the last value (MSE 1.5 ")
    assert " and " not in verdict(found, HOURLY)


def test_what_is_served_counts() -> None:
    found = result(0.1, 0.1).model_copy(update={"onnx": Accuracy(mse=2, mae=2)})
    assert is_worth_nothing(found)
    assert "MSE 2 against 1.29" in verdict(found, HOURLY)


@pytest.mark.parametrize(("frequency", "name"), [("h", "the last day"), ("MS", "the last year")])
def test_the_season_has_the_name_of_its_frequency(frequency: str, name: str) -> None:
    assert list(baseline_names(Frequency.parse(frequency)).values()) == ["the last value", name]
