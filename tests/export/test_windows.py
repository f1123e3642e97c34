import numpy as np
import pytest

from foretell.bundle.scaler import Scaler
from foretell.data.reading import read
from foretell.export.adversarial import adversarial
from foretell.export.data_windows import natural, split_of, synthetic, windows_of
from foretell.models.checkpoint import load_info
from foretell.timeaxis.frequency import Frequency


@pytest.fixture
def info(checkpoints):
    return load_info(checkpoints["autoformer"])


def test_natural_windows_are_rows_of_the_test_split_in_users_units(info, data):
    panel = read(data)
    (table,) = panel.tables
    windows = windows_of(info, panel)
    chosen = natural(windows, 10, seed=1)
    assert len(chosen) == 10
    ((_, start, end),) = split_of(info, panel).test
    rows = table.values[start:end].astype(np.float32)
    for history, calendar in zip(chosen.history, chosen.inputs["history_calendar"], strict=True):
        (first,) = np.flatnonzero((rows[:, 0] == history[0, 0]) & (rows[:, 2] == history[0, 2]))
        np.testing.assert_array_equal(history, rows[first : first + 48])
        times = table.timestamps[start + first : start + first + 48]
        np.testing.assert_array_equal(calendar, info.config.calendar.encode(times))


def test_windows_without_a_split_are_of_all_rows(info, data):
    panel = read(data)
    bare = info.model_copy(update={"data": None})
    assert len(windows_of(bare, panel)) == len(panel) - 48 - 12 + 1


def test_the_seed_chooses(info, data):
    windows = windows_of(info, read(data))
    one, same, other = (natural(windows, 10, seed).history for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_natural_returns_at_most_all_windows(info, data):
    windows = windows_of(info, read(data))
    assert len(natural(windows, 10**6, seed=0)) == len(windows)


def test_synthetic_windows_are_of_the_scale_of_the_data(info):
    windows = synthetic(info, 64, seed=0)
    mean, std = np.array(info.scaler.mean), np.array(info.scaler.std)
    standardised = (windows.history - mean) / std
    assert windows.history.dtype == np.float32
    assert np.abs(standardised.mean()) < 0.1
    assert 0.7 < standardised.std() < 1.1
    assert windows.inputs["history_calendar"].shape == (64, 48, 4)
    assert windows.inputs["future_calendar"].shape == (64, 12, 4)
    # The future's hours follow the history's.
    calendars = windows.inputs["history_calendar"], windows.inputs["future_calendar"]
    hours = np.concatenate(calendars, axis=1)[..., 0]
    steps = np.diff(np.rint((hours + 0.5) * 23), axis=1) % 24
    assert (steps == 1).all()
    assert Frequency.parse(info.frequency).unit == "h"


def test_take_and_batches(info):
    windows = synthetic(info, 10, seed=0)
    sizes = [len(batch) for batch in windows.batches(4)]
    assert sizes == [4, 4, 2]
    np.testing.assert_array_equal(windows.take(np.array([3])).history[0], windows.history[3])


@pytest.fixture
def kinds(info):
    windows = synthetic(info, 6, seed=0)
    mean, std = np.array(info.scaler.mean), np.array(info.scaler.std)
    found = {kind.name: kind for kind in adversarial(windows, info.scaler, seed=1)}
    histories = {name: (kind.history - mean) / std for name, kind in found.items()}
    return windows, found, histories


def test_adversarial_kinds_match_their_names(kinds):
    _, _, histories = kinds
    assert np.ptp(histories["constant"], axis=1).max() < 1e-3
    assert np.abs(histories["zero"]).max() < 1e-3
    np.testing.assert_allclose(
        histories["periodic"][:, 24:], histories["periodic"][:, :-24], atol=1e-3
    )
    np.testing.assert_allclose(np.diff(histories["trend"], n=2, axis=1), 0, atol=1e-3)
    np.testing.assert_allclose(histories["offset 30"].mean(), 30, atol=0.3)
    np.testing.assert_allclose(histories["offset 10000"].mean(), 10_000, rtol=1e-3)


def test_mixed_kind_alternates_over_the_channels(kinds):
    windows, found, histories = kinds
    np.testing.assert_array_equal(found["mixed"].history[..., 0], windows.history[..., 0])
    np.testing.assert_array_equal(histories["mixed"][..., 1], histories["constant"][..., 1])
    np.testing.assert_array_equal(histories["mixed"][..., 2], histories["zero"][..., 2])


def test_adversarial_kinds_keep_the_calendars(kinds):
    windows, found, _ = kinds
    for kind in found.values():
        assert kind.history.dtype == np.float32
        assert kind.history.shape == windows.history.shape
        name = "history_calendar"
        np.testing.assert_array_equal(kind.inputs[name], windows.inputs[name])


def test_gaps_keep_a_value_in_the_needed_steps_of_each_channel(kinds):
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
