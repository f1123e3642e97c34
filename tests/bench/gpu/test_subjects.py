from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.gpu.subjects import NATURAL, bundle_name, save, subjects
from foretell.bundle.errors import BundleError
from foretell.export.comparison import Case, Reference
from foretell.export.window_set import WindowSet


def test_bundles_of_a_model_have_one_reference(gpu_folder: Path) -> None:
    found = {subject.name: subject for subject in subjects(gpu_folder)}
    names = {"autoformer", "patchtst", "transformer", "patchtst-float16", "patchtst-bfloat16"}
    assert set(found) == names
    exact = found["patchtst"].cases[NATURAL].exact.forecast
    np.testing.assert_array_equal(found["patchtst-float16"].cases[NATURAL].exact.forecast, exact)
    assert exact.dtype == np.float64
    described = found["patchtst"].manifest
    assert exact.shape == (32, described.horizon, len(described.channels))
    assert set(found["patchtst"].cases) > {NATURAL, "constant", "offset 10000"}
    assert found["patchtst"].cases[NATURAL].windows.history_calendar is None
    assert found["transformer"].cases[NATURAL].windows.history_calendar is not None


def test_cases_come_back_as_they_were(tmp_path: Path) -> None:
    windows = WindowSet(
        "any", np.ones((2, 3, 1), np.float32), None, np.zeros((2, 4, 1), np.float32)
    )
    outputs = {"forecast": np.arange(2.0), "encoder.0.self.lags": np.arange(3)}
    case = Case(windows, Reference(outputs), Reference({"forecast": np.ones(2, np.float32)}))
    save(tmp_path, "m", {"any": case})
    with np.load(tmp_path / "references" / "m.npz") as file:
        assert sorted(file) == [
            "any/exact/encoder.0.self.lags",
            "any/exact/forecast",
            "any/future_calendar",
            "any/history",
            "any/rounded/forecast",
        ]


def test_names() -> None:
    assert bundle_name("m", "float32") == "m"
    assert bundle_name("m", "bfloat16") == "m-bfloat16"


def test_nothing_to_check_with(tmp_path: Path, gpu_folder: Path) -> None:
    (tmp_path / "repository").mkdir()
    with pytest.raises(BundleError, match="there is no bundle; `make gpu-subjects` writes some"):
        subjects(tmp_path)
    (tmp_path / "repository").rmdir()
    (tmp_path / "repository").symlink_to(gpu_folder / "repository")
    with pytest.raises(BundleError, match=r"autoformer\.npz: No such file"):
        subjects(tmp_path)
