import numpy as np
import pytest

from foretell.bundle.manifest import Scaler
from foretell.export.adversarial import adversarial
from foretell.export.data_windows import synthetic
from foretell.models.checkpoint import load_info


@pytest.fixture
def kinds(checkpoints):
    info = load_info(checkpoints["transformer"])
    windows = synthetic(info, 6, seed=0)
    mean, std = np.array(info.scaler.mean), np.array(info.scaler.std)
    found = {kind.name: kind for kind in adversarial(windows, info.scaler, seed=1)}
    histories = {name: (kind.history - mean) / std for name, kind in found.items()}
    return windows, found, histories


def test_kinds_are_what_their_names_say(kinds):
    _, _, histories = kinds
    assert np.ptp(histories["constant"], axis=1).max() < 1e-3
    assert np.abs(histories["zero"]).max() < 1e-3
    np.testing.assert_allclose(
        histories["periodic"][:, 24:], histories["periodic"][:, :-24], atol=1e-3
    )
    np.testing.assert_allclose(np.diff(histories["trend"], n=2, axis=1), 0, atol=1e-3)
    np.testing.assert_allclose(histories["offset 30"].mean(), 30, atol=0.3)
    np.testing.assert_allclose(histories["offset 10000"].mean(), 10_000, rtol=1e-3)


def test_mixed_takes_turns_over_the_channels(kinds):
    windows, found, histories = kinds
    np.testing.assert_array_equal(found["mixed"].history[..., 0], windows.history[..., 0])
    np.testing.assert_array_equal(histories["mixed"][..., 1], histories["constant"][..., 1])
    np.testing.assert_array_equal(histories["mixed"][..., 2], histories["zero"][..., 2])


def test_calendars_stay(kinds):
    windows, found, _ = kinds
    for kind in found.values():
        assert kind.history.dtype == np.float32
        assert kind.history.shape == windows.history.shape
        np.testing.assert_array_equal(kind.history_calendar, windows.history_calendar)


def test_each_channel_with_gaps_keeps_a_value_where_it_needs_one(kinds):
    windows, found, _ = kinds
    assert "gaps" not in found
    unit = Scaler.identity(windows.history.shape[2])
    few = [[*adversarial(windows, unit, seed, observed_steps=5)][-1] for seed in range(20)]
    assert {kind.name for kind in few} == {"gaps"}
    missing = np.stack([np.isnan(kind.history) for kind in few])
    assert not missing[:, :, -5:].all(axis=2).any()
    for places in (missing[:, :, 0], missing[:, :, -1], missing[:, :, :-5].all(axis=2)):
        assert places.any()
    np.testing.assert_array_equal(
        few[0].history[~missing[0]], windows.history[~missing[0]], strict=True
    )
