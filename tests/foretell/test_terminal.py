import pytest

from foretell.bundle.distribution import Distribution
from foretell.bundle.manifest import (
    Accuracy,
    CalibrationReport,
    Check,
    Coverage,
    Manifest,
    TestResult,
    Verification,
)
from foretell.bundle.verdict import verdict
from foretell.terminal import (
    print_calibration,
    print_composition,
    print_test,
    print_verification,
)
from foretell.timeaxis.frequency import Frequency

HOURLY = Frequency.parse("h")


def accuracy(mse: float, mae: float) -> Accuracy:
    return Accuracy(mse=mse, mae=mae)


def rows(text: str) -> list[list[str]]:
    """The cells of the body, row by row."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


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
    first, second = rows(text)
    assert first == ["graph, batch 1", "120", "8", "4.0e-07", "3.2e-06", "1e-05", "ok"]
    # A pipe is not cut to the width of a terminal.
    assert second[0] == bad.name.strip()
    assert second[-1] == "FAILED"


def test_accuracy(capsys: pytest.CaptureFixture[str]):
    result = TestResult(
        windows=1729,
        model=accuracy(0.453211, 0.4),
        onnx=accuracy(0.453212, 0.4),
        last_value=accuracy(0.887, 0.6),
        seasonal_naive=accuracy(0.832, 0.5),
        season=24,
    )
    bare = result.model_copy(update={"onnx": None, "seasonal_naive": None})
    print_test({"patchtst": result, "unknown": None, "bare": bare}, "h")
    text = capsys.readouterr().out
    first, second = rows(text)
    assert first == [
        "patchtst",
        "1729",
        "0.45321 / 0.40000",
        "0.45321 / 0.40000",
        "0.88700 / 0.60000",
        "0.83200 / 0.50000",
    ]
    assert second == ["bare", "1729", "0.45321 / 0.40000", "-", "0.88700 / 0.60000", "-"]
    # Not wrapped: a line of its own for each.
    said = text.splitlines()[-2:]
    assert said[0] == f"patchtst: {verdict(result, HOURLY)}"
    assert said[1] == f"bare: {verdict(bare, HOURLY)}"


def test_no_accuracy_prints_nothing(capsys: pytest.CaptureFixture[str]):
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
    assert rows(capsys.readouterr().out) == [
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
