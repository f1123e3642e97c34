import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from foretell.bundle.attention import Axis
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest, read
from foretell.bundle.results import Check, Verification
from foretell.timeaxis.frequency import Frequency

FIELDS: dict[str, Any] = {
    "format": 2,
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
            "mechanism": "linear",
            "form": "sparse",
            "heads": 2,
            "query": {"of": "channels", "length": 2},
            "key": {"of": "steps", "length": 18, "start": -24, "padding": 3},
            "outputs": [
                {"name": "decoder.0.cross.keys", "type": "int64", "shape": [2, 2, 3]},
                {"name": "decoder.0.cross.weights", "type": "float32", "shape": [2, 2, 3]},
            ],
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


STEPS: dict[str, Any] = {
    "name": "a",
    "mechanism": "softmax",
    "form": "dense",
    "heads": 1,
    "query": {"length": 3},
    "key": {"length": 3},
    "outputs": [{"name": "a.weights", "type": "float32", "shape": [1, 3, 3]}],
}
CHANNELS_OF_ANOTHER = STEPS | {"key": {"of": "channels", "length": 3}}
BY_ANOTHER_CHANNEL = STEPS | {
    "per_channel": True,
    "outputs": [{"name": "a.weights", "type": "float32", "shape": [3, 1, 3, 3]}],
}
SOME_CHANNELS = STEPS | {
    "per_channel": True,
    "places": [1],
    "query": {"of": "patches", "length": 3},
    "key": {"of": "channels", "length": 2, "padding": 1, "places": [0]},
    "outputs": [{"name": "a.weights", "type": "float32", "shape": [1, 1, 3, 2]}],
}
SAME_OUTPUT = STEPS | {
    "name": "a.b",
    "outputs": [{"name": "a.b.weights", "type": "float32", "shape": [1, 3, 3]}],
}
STEPS["outputs"].append({"name": "a.b.weights", "type": "float32", "shape": [1]})


def write(folder: Path, fields: dict[str, Any] | str) -> Path:
    text = fields if isinstance(fields, str) else json.dumps(fields)
    (folder / "manifest.json").write_text(text)
    return folder


def changed(place: str, value: object) -> dict[str, Any]:
    """The fields after one, at a path such as `scaler.mean.0`, is set, or removed if it is …."""
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
    assert manifest.devices == ("cuda", "cpu")
    assert manifest.attention[0].key == Axis(length=18, start=-24, stride=1, width=1, padding=3)
    assert manifest.step == Frequency.parse("h")
    assert read(write(tmp_path, manifest.model_dump_json())) == manifest


@pytest.mark.parametrize("name", ["timemixer", "TimesNet++", "TiDE v2.1", "x" * 64])
def test_architectures_need_not_be_known(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path, changed("architecture", name))).architecture == name


def test_axis_of_channels_may_have_padding(tmp_path: Path) -> None:
    """Tokens that a model appends to those of its channels stand for no channel."""
    stage = CHANNELS_OF_ANOTHER | {"key": {"of": "channels", "length": 3, "padding": 1}}
    (found,) = read(write(tmp_path, changed("attention", [stage]))).attention
    assert found.key.padding == 1
    (found,) = read(write(tmp_path, changed("attention", [SOME_CHANNELS]))).attention
    assert (found.places, found.key.places) == ((1,), (0,))


def test_a_bundle_without_calibration(tmp_path: Path) -> None:
    assert read(write(tmp_path, changed("calibration", ...))).calibration is None


def test_targets(tmp_path: Path) -> None:
    write(tmp_path, changed("targets", ["wind"]))
    found = read(tmp_path)
    assert (found.targets, found.columns) == (("wind",), [1])
    assert (found.target_scaler.mean, found.target_scaler.std) == ((-2.5,), (3.0,))
    write(tmp_path, FIELDS)
    found = read(tmp_path)
    assert (found.targets, found.columns) == (("load", "wind"), None)
    assert found.target_scaler is found.scaler
    assert read(write(tmp_path, found.model_dump_json())) == found


@pytest.mark.parametrize("written", ["H", "hour", "60min"])
def test_the_frequency_is_kept_as_a_pandas_alias(tmp_path: Path, written: str) -> None:
    manifest = read(write(tmp_path, changed("frequency", written)))
    assert manifest.frequency == str(Frequency.parse(written))
    assert manifest.step.agrees_with(Frequency.parse("h"))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("format", 4),
        ("name", "../x"),
        ("version", "latest"),
        ("created_at", "yesterday"),
        ("architecture", ""),
        ("architecture", "<b>bold</b>"),
        ("architecture", "two\nlines"),
        ("architecture", "x" * 65),
        ("devices", []),
        ("devices", ["tpu"]),
        ("rewrites", "none"),
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
        ("attention.0.name", '"'),
        ("attention.0.mechanism", ""),
        ("attention.0.form", "dotted"),
        ("attention.0.query.of", "rows"),
        ("attention.0.query.length", 0),
        ("attention.0.query", {"of": "channels", "length": 2, "start": -1}),
        ("attention.0.key.padding", -1),
        ("attention.0.key", {"length": 18, "padding": 18}),
        ("attention.0.heads", 0),
        ("attention.0.outputs.0.type", "int32"),
        ("attention.0.outputs.1.shape.2", 0),
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
        ("bounds", {"sun": {"low": 0.0}}, "bounds: no channel 'sun'"),
        ("observed_steps", 9999, "observed_steps: expected at most the context"),
        ("targets", [], "targets: expected channels, in their order"),
        ("targets", ["wind", "load"], "targets: expected channels, in their order"),
        ("targets", ["load", "load"], "targets: expected channels, in their order"),
        ("targets", ["sun"], "targets: expected channels, in their order"),
        ("scaler.std", [1.0, 1.0, 1.0], "scaler: expected 2 means"),
        ("calibration.steps", 11, "calibration: expected the steps of 2 passes"),
        ("calibration.disjoint", [16], "calibration: expected the steps of 2 passes"),
        (
            "attention.0.query.length",
            3,
            r"attention\.0: outputs: the shape of decoder\.0\.cross\.k",
        ),
        (
            "attention.0.outputs",
            [],
            r"attention\.0: outputs: decoder\.0\.cross\.keys of int64 is m",
        ),
        (
            "attention.0",
            CHANNELS_OF_ANOTHER,
            r"attention\.0\.key: expected the 2 channels besides padding",
        ),
        (
            "attention.0",
            BY_ANOTHER_CHANNEL,
            r"attention\.0\.outputs: expected 2 channels first in a\.weights",
        ),
        (
            "attention.0",
            SOME_CHANNELS | {"places": [2]},
            r"0\.places: there are 2 channels, from 0",
        ),
        (
            "attention.0",
            SOME_CHANNELS | {"places": [0, 1]},
            r"attention\.0\.outputs: expected 2 channels first in a\.weights",
        ),
        (
            "attention.0",
            SOME_CHANNELS | {"key": SOME_CHANNELS["key"] | {"places": [7]}},
            r"attention\.0\.key\.places: there are 2 channels, from 0",
        ),
        ("attention", [STEPS, STEPS], "attention: names are not unique"),
        ("attention", [STEPS, SAME_OUTPUT], "attention: names are not unique"),
        ("files", {"weights.bin": "ab" * 32}, "calibration: files has no calibration.npz"),
        ("files", {"weights.bin": "/dev/zero"}, "files.weights.bin: String should match pattern"),
        ("files", {"weights.bin": "ab" * 31 + "a\n"}, "String should match pattern"),
        ("files", {"weights.bin": "ab" * 32 + "\n"}, "String should match pattern"),
        *(
            ("files", {name: "ab" * 32}, "is not allowed as the name of a file")
            for name in (
                "../weights.bin",
                "..\\weights.bin",
                "a\0b",
                ".tag",
                "",
                "..",
                "a" * 129,
                "manifest.json",
                "model.sig",
            )
        ),
    ],
)
def test_fields_agree(tmp_path: Path, place: str, value: object, message: str) -> None:
    write(tmp_path, changed(place, value))
    with pytest.raises(BundleError, match=message):
        read(tmp_path)


def test_needed_steps_by_missing_option(tmp_path: Path) -> None:
    before = read(write(tmp_path, changed("observed_steps", None)))
    assert read(write(tmp_path, FIELDS)) == before
    found = read(write(tmp_path, changed("observed_steps", 2)))
    for missing in ("error", "interpolate", "ffill"):
        assert found.needed_steps(missing) == before.needed_steps(missing) == before.context
    assert (found.needed_steps("mask"), before.needed_steps("mask")) == (2, before.context)


def test_unknown_format_names_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, {**FIELDS, "format": 1, "targets": None})
    with pytest.raises(BundleError, match="format 1 is not read; export the checkpoint again"):
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
