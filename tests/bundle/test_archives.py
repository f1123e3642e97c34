from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.bundle import archives, calibration, evaluation, example, layout
from foretell.bundle.archives import Array
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import CalibrationReport


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.npz"
    np.savez_compressed(path, rows=np.arange(300.0), names=np.array(["a", "b"]))
    return path


def test_all_arrays_are_read(file: Path) -> None:
    found = archives.load(file, "names")
    np.testing.assert_array_equal(found["rows"], np.arange(300.0))
    assert found["names"].tolist() == ["a", "b"]


def test_missing_arrays_are_named(file: Path) -> None:
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read: it lacks columns"):
        archives.load(file, "rows", "columns", "more")


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8])
def test_damaged_bytes_raise_bundle_error(file: Path, part: float) -> None:
    """numpy, zipfile and zlib raise errors of many types for damaged bytes."""
    data = bytearray(file.read_bytes())
    for at in range(int(part * len(data)), len(data), len(data) // 5):
        data[at] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read: "):
        archives.load(file)


def test_single_array_is_refused(file: Path) -> None:
    with file.open("wb") as raw:
        np.save(raw, np.zeros(3))
    with pytest.raises(BundleError, match="cannot be read"):
        archives.load(file)


SPEC = {
    "names": Array("text", ("columns",)),
    "rows": Array("float64", ("rows", "columns")),
    "weights": Array("float32", ("rows",), gaps=True),
    "title": Array("text"),
}
ARRAYS: dict[str, Any] = {
    "names": np.array(["a", "b"]),
    "rows": np.asfortranarray(np.arange(6.0).reshape(3, 2)),
    "weights": np.array([1, np.nan, 3], np.float32),
    "title": np.array("some"),
}


def test_arrays_of_a_spec(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    values = {**ARRAYS, "names": ("a", "b"), "weights": [1, np.nan, 3], "title": "some"}
    archives.write(path, SPEC, SimpleNamespace(**values))
    for content in (None, path.read_bytes()):
        found = archives.read(path, SPEC, {"rows": 3}, content)
        for name, expected in ARRAYS.items():
            np.testing.assert_array_equal(found[name], expected)
            assert found[name].flags.c_contiguous


def test_empty_array_of_texts_is_read(tmp_path: Path) -> None:
    spec = {"names": Array("text", ("columns",))}
    archives.write(tmp_path / "some.npz", spec, SimpleNamespace(names=()))
    assert archives.read(tmp_path / "some.npz", spec, {})["names"].shape == (0,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rows": np.zeros((3, 3))},
            r"rows: expected \(3, 2\) in float64, got \(3, 3\) in float64",
        ),
        ({"rows": np.zeros((3, 2), np.float32)}, r"rows: expected .* got \(3, 2\) in float32"),
        ({"rows": np.full((3, 2), np.nan)}, "rows: must be finite"),
        ({"names": np.arange(2)}, "names: expected .* in text, got .* in int64"),
        ({"names": np.array("a")}, r"names: expected \('columns',\) in text, got \(\) in text"),
        ({"names": np.array(["a"])}, r"rows: expected \(3, 1\)"),
        ({"weights": np.ones(2, np.float32)}, r"weights: expected \(3,\)"),
        ({"weights": np.full(3, np.inf, np.float32)}, "weights: must be finite"),
        ({"title": np.array([None])}, "cannot be read"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, **(ARRAYS | changes))
    with pytest.raises(BundleError, match=rf"some\.npz: {message}"):
        archives.read(path, SPEC, {"rows": 3})


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4nothing", b"text"])
def test_no_archive_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read"):
        archives.read(path, SPEC, {})


@dataclass(frozen=True)
class Part:
    """A file of arrays in a bundle.

    Attributes:
        module: The module that reads and writes it.
        file: Its name.
        fields: Its content.
        about: Manifests of a bundle with the file, and of one without it.
        wrong: Fields that do not fit the manifest, and their message.
    """

    module: Any
    file: str
    fields: dict[str, Any]
    about: tuple[Manifest, Manifest]
    wrong: list[tuple[dict[str, Any], str]]

    def made(self, **changes: Any) -> Any:
        kind = getattr(self.module, self.module.__name__.rpartition(".")[2].capitalize())
        return kind(**self.fields | changes)


def about(file: str, **fields: Any) -> tuple[Manifest, Manifest]:
    return tuple(Manifest.model_construct(files=files, **fields) for files in ({file: ""}, {}))


ERRORS = np.arange(16.0).reshape(2, 4, 2)
OFFSETS = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
REPORT = CalibrationReport(floor=0.1, steps=3, windows=(9,), disjoint=(1,), coverage=())
PARTS = [
    Part(
        evaluation,
        layout.EVALUATION,
        {
            "forecasters": ("onnx", "last_value"),
            "mse": ERRORS,
            "mae": ERRORS / 2,
            "levels": np.array([0.1, 0.9]),
            "below": np.array([[0.25, 0], [0.75, 0.5]]),
            "up_to": np.array([[0.25, 0.5], [0.75, 1]]),
        },
        about(layout.EVALUATION, channels=tuple("abc"), targets=tuple("ab"), horizon=4),
        [
            ({"mse": np.zeros((2, 4, 3))}, r"mse: expected \(2, 4, 2\)"),
            ({"levels": np.array([0.5])}, r"below: expected \(1, 2\)"),
            ({"up_to": np.zeros((2, 3))}, r"up_to: expected \(2, 2\)"),
        ],
    ),
    Part(
        example,
        layout.EXAMPLE,
        {
            "history": np.arange(10.0).reshape(5, 2),
            "timestamps": np.array([f"2024-01-0{day}" for day in range(1, 6)]),
            "actual": np.array([[1.5], [2.5]]),
            "series": "house",
        },
        about(layout.EXAMPLE, channels=("a", "b"), targets=("b",), context=4, horizon=2),
        [
            ({"history": np.zeros((5, 3))}, r"history: expected \(5, 2\)"),
            ({"actual": np.zeros((2, 2))}, r"actual: expected \(2, 1\)"),
            ({"timestamps": np.array(["2024-01-01"] * 4)}, r"history: expected \(4, 2\)"),
            (
                {"timestamps": np.array(["2024-01-01"] * 3), "history": np.zeros((3, 2))},
                "timestamps: expected 4 rows or more",
            ),
        ],
    ),
    Part(
        calibration,
        layout.CALIBRATION,
        {"levels": np.array([0.1, 0.4, 0.6, 0.9]), "offsets": OFFSETS},
        (
            Manifest.model_construct(channels=("a", "b"), targets=("a", "b"), calibration=REPORT),
            Manifest.model_construct(calibration=None),
        ),
        [
            ({"levels": np.array([0.1, 0.6, 0.4, 0.9])}, ".*increase"),
            ({"levels": np.array([0.1]), "offsets": OFFSETS[:1]}, ".*two levels"),
            ({"offsets": OFFSETS[:, :2]}, r".*expected \(4, 3, 2\)"),
            ({"offsets": -OFFSETS}, ".*increase"),
        ],
    ),
]
EACH = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.file)


@EACH
def test_part_is_read_as_written(tmp_path: Path, part: Part) -> None:
    with_it, without = part.about
    part.module.write(tmp_path, part.made())
    found = part.module.read(tmp_path, with_it)
    for name, value in part.fields.items():
        np.testing.assert_array_equal(getattr(found, name), value)
    assert part.module.read(tmp_path, without) is None


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [(part, *wrong) for part in PARTS for wrong in part.wrong],
)
def test_part_that_does_not_fit_the_manifest_is_refused(
    tmp_path: Path, part: Part, changes: dict[str, Any], message: str
) -> None:
    part.module.write(tmp_path, part.made(**changes))
    with pytest.raises(BundleError, match=rf"^{tmp_path / part.file}: {message}"):
        part.module.read(tmp_path, part.about[0])


def test_levels_are_reached_between_shares_of_equal_values() -> None:
    assert PARTS[0].made().reached.tolist() == [[0.25, 0.1], [0.75, 0.9]]
