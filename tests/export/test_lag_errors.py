import numpy as np
import pytest

from foretell.bundle.manifest import AttentionStage, Axis
from foretell.export.lag_errors import attention_error, headroom, lags_differ, margin_error

LAGS = 6
STEPS = Axis(length=LAGS, start=-LAGS)
STAGE = AttentionStage(name="a", kind="autocorrelation", heads=1, query=STEPS, key=STEPS)
SOFTMAX = AttentionStage(name="s", kind="softmax", heads=1, query=STEPS, key=STEPS)
EXACT = np.array([[9.0, 1.0, 5.0, 4.0, 0.0, -1.0]])
FLAT = np.ones((1, LAGS))
EVERY = np.array([True])


def outputs(correlation, keep=2):
    """What a graph with this correlation returns."""
    correlation = np.asarray(correlation, np.float64)
    lags = np.argsort(-correlation, axis=1)[:, :keep]
    return {
        "forecast": np.zeros((len(correlation), 1, 1)),
        "a.lags": lags,
        "a.lag_weights": np.full(lags.shape, 1 / keep),
        "a.correlation": correlation,
    }


def test_headroom_is_the_margin_over_twice_the_rounding():
    found = outputs(EXACT + np.array([0.0004, 0, 0, -0.0002, 0, -0.0002]))
    assert headroom([STAGE], found, outputs(EXACT)) == pytest.approx(1 / 0.0008)
    assert headroom([STAGE, SOFTMAX], found, outputs(EXACT)) == pytest.approx(1 / 0.0008)


def test_headroom_takes_no_large_error_for_rounding():
    found = outputs(EXACT[:, ::-1])
    assert headroom([STAGE], found, outputs(EXACT)) == pytest.approx(1 / (2 * 9e-4))


def test_an_error_that_all_lags_share_is_none():
    found = outputs(EXACT + 1)
    assert headroom([STAGE], found, outputs(EXACT)) == np.inf
    assert margin_error([STAGE], found, outputs(EXACT), EVERY) == 0


def test_ties_have_no_headroom():
    tied = outputs([[9.0, 1, 4, 4, 0, -1]])
    assert headroom([STAGE], tied, tied) == 0


def test_without_a_lag_left_out_rounding_decides_nothing():
    every = outputs(EXACT, keep=LAGS)
    assert headroom([STAGE], outputs(EXACT + 0.1, keep=LAGS), every) == np.inf
    assert margin_error([STAGE], outputs(EXACT + 0.1, keep=LAGS), every, EVERY) == 0


def test_without_auto_correlation():
    assert headroom([SOFTMAX], outputs(EXACT), outputs(EXACT)) == np.inf
    assert margin_error([SOFTMAX], outputs(EXACT), outputs(EXACT), EVERY) is None
    assert not lags_differ([SOFTMAX], outputs(EXACT), outputs(EXACT))


def test_margin_error_is_that_of_the_margin_relative_to_the_range():
    # The margin is that between lags 2 and 3, however wrong the others are.
    found = outputs(EXACT + np.array([-1, 0.5, 0.1, -0.1, 0.5, 0]))
    assert margin_error([STAGE], found, outputs(EXACT), EVERY) == pytest.approx(0.02)


def test_margin_error_counts_the_windows_that_were_compared():
    exact = outputs(np.concatenate([EXACT, EXACT]))
    found = outputs(np.concatenate([EXACT, EXACT + np.eye(1, LAGS, 2)]))
    assert margin_error([STAGE], found, exact, np.array([True, False])) == 0
    assert margin_error([STAGE], found, exact, np.array([True, True])) == pytest.approx(0.1)
    assert margin_error([STAGE], found, exact, np.array([False, False])) == 0


def test_a_flat_correlation_has_a_margin_error():
    assert margin_error([STAGE], outputs(FLAT), outputs(FLAT), EVERY) == 0


def test_sets_of_lags_are_compared_and_not_their_order():
    reordered = outputs(EXACT[:, [2, 1, 0, 3, 4, 5]])
    assert not lags_differ([STAGE], reordered, outputs(EXACT))
    assert attention_error(STAGE, reordered, outputs(EXACT)) == 0
    other = outputs(EXACT[:, [0, 2, 1, 3, 4, 5]])
    assert lags_differ([STAGE], other, outputs(EXACT))
    assert attention_error(STAGE, other, outputs(EXACT)) == np.inf


def test_attention_error_is_that_of_a_weight():
    found = outputs(EXACT) | {"a.lag_weights": np.array([[0.6, 0.4]])}
    assert attention_error(STAGE, found, outputs(EXACT)) == pytest.approx(0.1)
    maps = [{"s.weights": np.full((1, 1, LAGS, LAGS), value)} for value in (0.25, 0.5)]
    assert attention_error(SOFTMAX, *maps) == 0.25
