from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.models.layers.observed import OBSERVED_NORMS
from foretell.models.layers.window_norms import build_window_norm

NORMS = ("mean", "magnitude", None)


def lacking() -> torch.Tensor:
    """Two windows of three channels, of which one has a single value, and one none."""
    torch.manual_seed(0)
    history = 5 + torch.randn(2, 9, 3)
    history[0, 0, 0] = history[0, -1, 0] = history[1, 3:8, 1] = torch.nan
    history[1, 1:, 2] = history[0, :, 2] = torch.nan
    return history


@pytest.mark.parametrize("name", NORMS)
def test_a_window_without_gaps_is_normalised_as_ever(name: str | None) -> None:
    history = 5 + torch.randn(2, 9, 3)
    found, _ = OBSERVED_NORMS[name](3, False)(history)
    plain = build_window_norm(name or "identity", 3, affine=False)(history)[0]
    torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("name", NORMS)
def test_what_is_missing_is_a_zero_and_measures_nothing(name: str | None) -> None:
    history = lacking()
    norm = OBSERVED_NORMS[name](3, False)
    found, statistics = norm(history)
    values = history.double().numpy()
    empty = np.isnan(values).all(axis=1, keepdims=True)
    values = np.where(empty, 0, values)
    centre, spread = np.zeros((2, 1, 3)), np.ones((2, 1, 3))
    if name == "mean":
        centre = np.nanmean(values, axis=1, keepdims=True)
        spread = np.sqrt(np.nanvar(values, axis=1, keepdims=True) + 1e-5)
    elif name == "magnitude":
        spread = np.maximum(np.nanmean(np.abs(values), axis=1, keepdims=True), 1e-10)
    expected = (np.nan_to_num(history.double().numpy()) - centre) / spread
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if name is not None:
        forecast = norm.reverse(torch.ones(2, 1, 3), statistics)
        np.testing.assert_allclose(forecast, centre + spread, rtol=1e-5)


def test_there_are_as_many_as_the_library_has() -> None:
    assert OBSERVED_NORMS.keys() == set(NORMS)
