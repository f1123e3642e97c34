import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from foretell.bundle.errors import BundleError
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import AttentionStage, Axis, Check, Manifest, Verification, read

FIELDS: dict[str, Any] = {
    "format": 1,
    "name": "weather",
    "version": "3",
    "created_at": "2024-03-01T13:00:00Z",
    "architecture": "autoformer",
    "config": {"d_model": 8, "calendar": None},
    "parameters": 1234,
    "channels": ["load", "wind"],
    "context": 24,
    "horizon": 6,
    "frequency": "h",
    "calendar": {"encoding": "scaled", "features": ["hour", "day_of_week"]},
    "scaler": {"mean": [1.0, -2.5], "std": [0.1, 3.0]},
    "attention": [
        {
            "name": "decoder.0.cross",
            "kind": "autocorrelation",
            "heads": 2,
            "query": {"length": 18, "start": -12},
            "key": {"length": 18, "start": -24, "padding": 3},
        }
    ],
    "test": {
        "windows": 5,
        "model": {"mse": 0.5, "mae": 0.25},
        "onnx": {"mse": 0.5, "mae": 0.25},
        "last_value": {"mse": 1.0, "mae": 1.0},
        "seasonal_naive": None,
        "season": None,
    },
    "calibration": {
        "method": "scaled_split_conformal",
        "floor": 0.1,
        "steps": 12,
        "windows": [90, 40],
        "disjoint": [16, 8],
        "coverage": [
            {
                "level": 0.8,
                "first_step": 1,
                "last_step": 6,
                "windows": 5,
                "coverage": 0.81,
                "width": 1.5,
            }
        ],
    },
    "verification": {
        "reference": "torch float64",
        "provider": "CPUExecutionProvider",
        "checks": [
            {
                "name": "forecast",
                "windows": 5,
                "excluded": 1,
                "max_error": 1e-6,
                "median_error": 1e-7,
                "tolerance": 1e-5,
            }
        ],
    },
    "probe_tolerance": 1e-4,
    "opset": 23,
    "libraries": {"torch": "2.13.0"},
    "files": {"weights.bin": "ab" * 32, "calibration.npz": "cd" * 32},
}


def write(folder: Path, fields: dict[str, Any] | str) -> Path:
    text = fields if isinstance(fields, str) else json.dumps(fields)
    (folder / "manifest.json").write_text(text)
    return folder


def changed(place: str, value: object) -> dict[str, Any]:
    """The fields with one of them, at a path such as `scaler.mean.0`, set or (…) removed."""
    fields = json.loads(json.dumps(FIELDS))
    *parents, last = place.split(".")
    target = fields
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    key = int(last) if last.isdigit() else last
    if value is ...:
        del target[key]
    else:
        target[key] = value
    return fields


def test_round_trip(tmp_path: Path) -> None:
    manifest = read(write(tmp_path, FIELDS))
    assert manifest.channels == ("load", "wind")
    assert manifest.attention[0].key == Axis(length=18, start=-24, stride=1, width=1, padding=3)
    assert manifest.step == Frequency.parse("h")
    assert read(write(tmp_path, manifest.model_dump_json())) == manifest


def test_a_bundle_without_calibration(tmp_path: Path) -> None:
    assert read(write(tmp_path, changed("calibration", ...))).calibration is None


@pytest.mark.parametrize("written", ["H", "hour", "60min"])
def test_the_frequency_is_kept_as_a_pandas_alias(tmp_path: Path, written: str) -> None:
    manifest = read(write(tmp_path, changed("frequency", written)))
    assert manifest.frequency == str(Frequency.parse(written))
    assert manifest.step.agrees_with(Frequency.parse("h"))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("format", 2),
        ("name", "../x"),
        ("version", "latest"),
        ("created_at", "yesterday"),
        ("architecture", "oracle"),
        ("config", None),
        ("parameters", 0),
        ("precision", "int8"),
        ("channels", []),
        ("context", 0),
        ("horizon", "six"),
        ("frequency", "often"),
        ("calendar", ...),
        ("calendar.encoding", "none"),
        ("scaler", None),
        ("scaler.std", ["x", 1.0]),
        ("attention.0.kind", "linear"),
        ("attention.0.query.length", 0),
        ("attention.0.key.padding", -1),
        ("attention.0.heads", 0),
        ("test.windows", 0),
        ("test.model", ...),
        ("calibration.method", "guess"),
        ("calibration.floor", 0),
        ("calibration.windows", []),
        ("calibration.coverage.0.level", 80),
        ("calibration.coverage.0.coverage", 1.1),
        ("verification", ...),
        ("verification.checks.0.excluded", -1),
        ("probe_tolerance", None),
        ("opset", 0),
        ("libraries", []),
        ("files", ...),
        ("unknown", 1),
    ],
)
def test_errors_name_the_field(tmp_path: Path, place: str, value: object) -> None:
    write(tmp_path, changed(place, value))
    with pytest.raises(BundleError) as raised:
        read(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'manifest.json'}: {place}")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("channels", ["load", "load"], "channels: names are not unique"),
        ("scaler.mean", [1.0], "scaler: expected 2 means"),
        ("scaler.std", [1.0, 1.0, 1.0], "scaler: expected 2 means"),
        ("calibration.steps", 11, "calibration: expected the steps of 2 passes"),
        ("calibration.disjoint", [16], "calibration: expected the steps of 2 passes"),
        ("files", {"weights.bin": "ab"}, "calibration: files has no calibration.npz"),
        ("files", {"../weights.bin": "ab"}, "files: a name has a slash"),
        ("files", {"..\\weights.bin": "ab"}, "files: a name has a slash"),
    ],
)
def test_fields_agree(tmp_path: Path, place: str, value: object, message: str) -> None:
    write(tmp_path, changed(place, value))
    with pytest.raises(BundleError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"'])
def test_no_manifest(tmp_path: Path, text: str) -> None:
    with pytest.raises(BundleError, match=r"manifest\.json: missing"):
        read(tmp_path)
    write(tmp_path, text)
    with pytest.raises(BundleError, match=r"manifest\.json: "):
        read(tmp_path)


def test_a_manifest_does_not_change() -> None:
    manifest = Manifest.model_validate(FIELDS)
    with pytest.raises(ValidationError, match="frozen"):
        manifest.name = "other"  # type: ignore[misc]


@pytest.fixture
def check() -> Callable[[float], Check]:
    def make(error: float) -> Check:
        return Check(name="x", windows=1, max_error=error, median_error=0, tolerance=1e-5)

    return make


def test_a_verification_passes_when_every_check_does(check: Callable[[float], Check]) -> None:
    assert check(1e-5).passed
    for error in (1.1e-5, float("inf"), float("nan")):
        assert not check(error).passed
    for checks, passed in (((1e-6, 1e-5), True), ((1e-6, 1e-4), False)):
        verification = Verification(
            reference="torch", provider="CPU", checks=tuple(check(error) for error in checks)
        )
        assert verification.passed is passed


def test_outputs_of_a_stage() -> None:
    axis = Axis(length=4, start=-4)
    names = {
        kind: AttentionStage.model_validate(
            {"name": "encoder.0.self", "kind": kind, "heads": 1, "query": axis, "key": axis}
        ).outputs
        for kind in ("softmax", "autocorrelation")
    }
    assert names == {
        "softmax": ("encoder.0.self.weights",),
        "autocorrelation": (
            "encoder.0.self.lags",
            "encoder.0.self.lag_weights",
            "encoder.0.self.correlation",
        ),
    }
