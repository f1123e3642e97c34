from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle import example
from foretell.bundle.errors import BundleError
from foretell.bundle.example import Example
from foretell.bundle.layout import EXAMPLE
from foretell.bundle.manifest import Manifest

MANIFEST = Manifest.model_construct(
    channels=("a", "b"), targets=("b",), context=4, horizon=2, files={EXAMPLE: ""}
)
FIELDS: dict[str, Any] = {
    "history": np.arange(10.0).reshape(5, 2),
    "timestamps": np.array([f"2024-01-0{day}" for day in range(1, 6)]),
    "actual": np.array([[1.5], [2.5]]),
    "series": "house",
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    example.write(tmp_path, Example(**FIELDS))
    found = example.read(tmp_path, MANIFEST)
    assert found is not None
    for name, value in FIELDS.items():
        np.testing.assert_array_equal(getattr(found, name), value)


def test_a_bundle_may_have_none(tmp_path: Path) -> None:
    assert example.read(tmp_path, MANIFEST.model_copy(update={"files": {}})) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"history": np.zeros((5, 3))}, r"history: expected \(5, 2\)"),
        ({"actual": np.zeros((2, 2))}, r"actual: expected \(2, 1\)"),
        ({"timestamps": np.array(["2024-01-01"] * 4)}, r"history: expected \(4, 2\)"),
        (
            {"timestamps": np.array(["2024-01-01"] * 3), "history": np.zeros((3, 2))},
            "timestamps: expected 4 rows or more",
        ),
    ],
)
def test_another_one_than_the_manifest_says_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    example.write(tmp_path, Example(**{**FIELDS, **changes}))
    with pytest.raises(BundleError, match=message):
        example.read(tmp_path, MANIFEST)
