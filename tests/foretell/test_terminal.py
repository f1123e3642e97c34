import numpy as np
import pytest

from foretell.bundle.distribution import Distribution
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import (
    Accuracy,
    CalibrationReport,
    Check,
    Coverage,
    TestResult,
    Verification,
)
from foretell.bundle.verdict import verdict
from foretell.terminal.tables import (
    print_calibration,
    print_composition,
    print_test,
    print_verification,
)
from foretell.terminal.words import numbers, period, sparkline
from foretell.timeaxis.frequency import Frequency
from tests.support.command import cells

HOURLY = Frequency.parse("h")


def accuracy(mse: float, mae: float) -> Accuracy:
    return Accuracy(mse=mse, mae=mae)


def test_composition(capsys: pytest.CaptureFixture[str]):
    found = {"rewrites": ("EncoderLayer",), "plain": ("FeedForward", "Mine"), "devices": ("cpu",)}
    print_composition(Manifest.model_construct(**found))
    assert capsys.readouterr().out == (
        "in a faster form: EncoderLayer\nas trained: FeedForward, Mine\nfor: cpu\n"
    )
    print_composition(Manifest.model_construct(**found | {"rewrites": (), "plain": ()}))
    assert capsys.readouterr().out == "for: cpu\n"


def test_verification(capsys: pytest.CaptureFixture[str]):
    good = Check(
        name="graph, batch 1",
        windows=120,
        excluded=8,
        max_error=3.21e-6,
        median_error=4e-7,
        tolerance=1e-5,
    )
    bad = good.model_copy(update={"name": "graph, a name that is long " * 4, "max_error": 0.5})
    found = Verification(
        reference="torch float64", provider="CPU", checks=(good, bad), deviations=(9e-4, 0.05)
    )
    print_verification(found, ("load", "pressure"), "float32")
    text, warning = capsys.readouterr()
    assert "training: pressure by 0.05. The values are large" in warning
    assert "subtract a constant from the data" in warning
    assert "CPU against torch float64" in text
    first, second = cells(text)
    assert first == ["graph, batch 1", "120", "8", "4.0e-07", "3.2e-06", "1e-05", "passed"]
    # A pipe is not cut to the width of a terminal.
    assert second[0] == bad.name.strip()
    assert second[-1] == "FAILED"


def test_accuracy(capsys: pytest.CaptureFixture[str]):
    errors = {"last_value": accuracy(0.887, 0.6), "seasonal_naive": accuracy(0.832, 0.5)}
    model, onnx = accuracy(0.453211, 0.4), accuracy(0.453212, 0.4)
    result = TestResult(windows=1729, model=model, onnx=onnx, season=24, **errors)
    bare = result.model_copy(update={"onnx": None, "seasonal_naive": None})
    print_test({"patchtst": result, "unknown": None, "bare": bare}, "h")
    text = capsys.readouterr().out
    first, second = cells(text)
    ours, others = ["0.45321 / 0.40000"] * 2, ["0.88700 / 0.60000", "0.83200 / 0.50000"]
    assert first == ["patchtst", "1729", *ours, *others]
    assert second == ["bare", "1729", "0.45321 / 0.40000", "-", "0.88700 / 0.60000", "-"]
    # A line for each verdict, not wrapped.
    lines = text.splitlines()[-2:]
    assert lines[0] == f"patchtst: {verdict(result, HOURLY)}"
    assert lines[1] == f"bare: {verdict(bare, HOURLY)}"
    print_test({"patchtst": None}, "h")
    assert capsys.readouterr().out == ""


def test_calibration(capsys: pytest.CaptureFixture[str]):
    parts = [
        Coverage(level=0.8, first_step=1, last_step=24, windows=99, coverage=0.7612, width=1.2345),
        Coverage(level=0.95, first_step=25, last_step=48, windows=98, coverage=1, width=2),
    ]
    report = CalibrationReport(
        floor=0.1, steps=48, windows=(853, 256), disjoint=(36, 18), coverage=tuple(parts)
    )
    manifest = Manifest.model_construct(calibration=report)
    print_calibration(manifest)
    assert cells(capsys.readouterr().out) == [
        ["1 to 24", "853", "36", "99", "80%", "76.1%", "1.234"],
        ["25 to 48", "256", "18", "98", "95%", "100.0%", "2.000"],
    ]
    unmeasured = report.model_copy(update={"coverage": ()})
    print_calibration(Manifest.model_construct(calibration=unmeasured))
    assert capsys.readouterr().out == (
        "quantiles for 48 steps, from the errors of 853 windows (scaled split conformal); the test "
        "split is too short to measure them\n"
    )
    print_calibration(Manifest.model_construct(distribution=Distribution.of_quantiles((0.1, 0.5))))
    assert capsys.readouterr().out == "quantiles: those that it forecasts (0.1, 0.5)\n"
    print_calibration(Manifest.model_construct())
    assert capsys.readouterr().out == ""
    print_calibration(Manifest.model_construct(calibration_missing="its split is short"))
    assert capsys.readouterr().out == "no quantiles: its split is short\n"


@pytest.mark.parametrize(
    ("steps", "frequency", "words"),
    [
        (24, "h", "1 day"),
        (36, "h", "1 day 12 hours"),
        (86, "h", "3 days 14 hours"),
        (168, "h", "1 week"),
        (192, "h", "8 days"),
        (0, "h", "0 seconds"),
        (96, "15min", "1 day"),
        (6, "15min", "1 hour 30 minutes"),
        (90, "s", "1 minute 30 seconds"),
        (100, "10ms", "1 second"),
        (150, "10ms", "1 second 500 milliseconds"),
        (2, "1250us", "2 milliseconds 500 microseconds"),
        (7, "D", "1 week"),
        (2, "W-SUN", "2 weeks"),
        (5, "B", "5 business days"),
        (3, "ME", "3 months"),
        (12, "M", "1 year"),
        (15, "M", "1 year 3 months"),
        (0, "M", "0 months"),
        (49, "30min", "1 day 30 minutes"),
        (3, "QS", "9 months"),
        (3, "BME", "3 months"),
        (4, "SMS", "2 months"),
        (3, "SMS", "3 half months"),
        (24, "SME-20", "1 year"),
        (8, "Q", "2 years"),
        (1, "2YS", "2 years"),
    ],
)
def test_periods(steps: int, frequency: str, words: str) -> None:
    assert period(steps, Frequency.parse(frequency)) == words


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([5.5, 6.5], ["5.5", "6.5"]),
        ([50, 60], ["50", "60"]),
        ([12860.4, 12860.6, 12861.0], ["12860.4", "12860.6", "12861.0"]),
        ([12860.41, 12860.42, 13000], ["12860.41", "12860.42", "13000.00"]),
        ([0.5, 0.5, 0.5], ["0.5", "0.5", "0.5"]),
        ([0, 0], ["0", "0"]),
        ([1 / 3, 2 / 3], ["0.3333", "0.6667"]),
        ([-1.25, 1e-7], ["-1.25", "0.00"]),
        ([1e20, 3e-9], ["1e+20", "3e-09"]),
        ([1.5, np.nan], ["1.5", "nan"]),
        # No more digits than float32 has.
        ([1.0, 1.0 + 1e-12], ["1", "1"]),
        ([], []),
    ],
)
def test_numbers_have_enough_digits_to_differ(values: list[float], texts: list[str]) -> None:
    assert numbers(np.array(values, np.float64)) == texts


def test_sparklines_share_a_scale() -> None:
    assert sparkline(np.arange(8.0)) == ["▁▂▃▄▅▆▇█"]
    assert sparkline(np.array([0.0, 7.0]), np.array([14.0])) == ["▁▅", "█"]
    assert sparkline(np.ones(3)) == ["▅▅▅"]
    # A long one shows means.
    assert sparkline(np.repeat([0.0, 7.0], 50), width=2) == ["▁█"]
