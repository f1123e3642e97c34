from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle import evaluation, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.evaluation import Evaluation
from foretell.bundle.manifest import Manifest
from tests.support.bundles import Spec, write_bundle

SPEC = Spec(channels=("load", "wind", "sun"), targets=("load", "wind"), horizon=4)


def found(**changes: Any) -> Evaluation:
    errors = np.arange(16.0).reshape(2, 4, 2)
    fields = {
        "forecasters": ("onnx", "last_value"),
        "mse": errors,
        "mae": errors / 2,
        "levels": np.array([0.1, 0.9]),
        "below": np.array([[0.25, 0], [0.75, 0.5]]),
        "up_to": np.array([[0.25, 0.5], [0.75, 1]]),
    }
    return Evaluation(**fields | changes)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path, SPEC)


@pytest.fixture
def about(bundle: Path) -> Manifest:
    known = manifest.read(bundle)
    return known.model_copy(update={"files": known.files | {layout.EVALUATION: "0" * 64}})


def test_what_is_written_is_read(bundle: Path, about: Manifest) -> None:
    evaluation.write(bundle, found())
    again = evaluation.read(bundle, about)
    assert again is not None
    assert again.forecasters == ("onnx", "last_value")
    for name in ("mse", "mae", "levels", "below", "up_to"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found(), name))


def test_an_earlier_bundle_has_none(bundle: Path) -> None:
    assert evaluation.read(bundle, manifest.read(bundle)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mse": np.zeros((2, 4, 3))}, r"mse: expected \(2, 4, 2\)"),
        ({"levels": np.array([0.5])}, r"below: expected \(1, 2\)"),
        ({"up_to": np.zeros((2, 3))}, r"up_to: expected \(2, 2\)"),
    ],
)
def test_what_does_not_fit_the_manifest_is_refused(
    bundle: Path, about: Manifest, changes: dict[str, Any], message: str
) -> None:
    evaluation.write(bundle, found(**changes))
    with pytest.raises(BundleError, match=rf"evaluation\.npz: {message}"):
        evaluation.read(bundle, about)


def test_a_level_is_reached_where_equal_values_leave_it_room() -> None:
    assert found().reached.tolist() == [[0.25, 0.1], [0.75, 0.9]]
