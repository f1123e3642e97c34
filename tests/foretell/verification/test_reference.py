from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.bundle.errors import BundleError
from foretell.export.comparison import Case, Reference
from foretell.export.window_set import WindowSet
from foretell.verification.reference import NATURAL, of_checkpoint, read, save


def test_cases_are_natural_and_adversarial(checkpoints: dict[str, Path], data: Path) -> None:
    cases = of_checkpoint(checkpoints["transformer"], data)
    natural = cases[NATURAL]
    assert natural.exact.forecast.dtype == np.float64
    assert natural.exact.forecast.shape == (32, 12, 3)
    assert natural.windows.history_calendar is not None
    assert set(cases) > {NATURAL, "constant", "offset 10000"}
    assert cases["constant"].rounded is not None


def test_cases_come_back_as_they_were(tmp_path: Path) -> None:
    windows = WindowSet(
        "any", np.ones((2, 3, 1), np.float32), None, np.zeros((2, 4, 1), np.float32)
    )
    outputs = {"forecast": np.arange(2.0), "encoder.0.self.lags": np.arange(3)}
    save({"any": Case(windows, Reference(outputs), None)}, tmp_path / "r.npz")
    [(name, case)] = read(tmp_path / "r.npz").items()
    assert (name, case.rounded) == ("any", None)
    np.testing.assert_equal(case.windows.inputs, windows.inputs)
    np.testing.assert_equal(dict(case.exact.outputs), outputs)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"r\.npz: No such file"):
        read(tmp_path / "r.npz")
    (tmp_path / "r.npz").write_text("x")
    with pytest.raises(BundleError, match=r"r\.npz: "):
        read(tmp_path / "r.npz")
