import numpy as np
import pytest

from foretell.bundle.attention import Axis, Choice, Output, stage
from foretell.export.choices import (
    attention_error,
    choices_differ,
    headroom,
    margin_error,
    score_errors,
)
from foretell.export.errors import ExportError

LAGS = 6
STEPS = Axis(length=LAGS, start=-LAGS)
STAGE = stage("a", "autocorrelation", "circulant", 1, STEPS, STEPS)
DENSE = stage("s", "softmax", "dense", 1, STEPS, STEPS)
SPARSE = stage("p", "topk", "sparse", 2, STEPS, STEPS, kept=2)
NONE = stage("n", "fourier", "none", 1, STEPS, STEPS)
# Every query of two heads goes to one of four buckets.
BUCKETS = NONE.model_copy(
    update={
        "outputs": (
            Output(name="n.bucket", type="int64", shape=(2, LAGS, 1)),
            Output(name="n.scores", type="float32", shape=(2, LAGS, 4)),
        ),
        "choices": (Choice(chosen="n.bucket", scores="n.scores"),),
    }
)
EXACT = np.array([[9.0, 1.0, 5.0, 4.0, 0.0, -1.0]])
FLAT = np.ones((1, LAGS))


def outputs(correlation, keep=2):
    """Outputs of a graph with this correlation."""
    correlation = np.asarray(correlation, np.float64)
    lags = np.argsort(-correlation, axis=1)[:, :keep]
    return {
        "forecast": np.zeros((len(correlation), 1, 1)),
        "a.lags": lags,
        "a.lag_weights": np.full(lags.shape, 1 / keep),
        "a.correlation": correlation,
    }


def bucketed(scores):
    return {
        "forecast": np.zeros((len(scores), 1, 1)),
        "n.bucket": scores.argmax(axis=-1)[..., None],
        "n.scores": scores,
    }


OFF = np.array([0.04, 0, 0, -0.02, 0, -0.02])


@pytest.mark.parametrize(
    ("found", "rounding", "expected"),
    [
        # Headroom is the margin divided by twice the rounding error.
        (EXACT + OFF / 100, None, 1 / 0.0008),
        # A large error is not a rounding error,
        (EXACT[:, ::-1], None, 1 / (2 * 9e-4)),
        (np.where(EXACT == 1, np.nan, EXACT), None, 1 / (2 * 9e-4)),
        (EXACT + OFF, None, 1 / (2 * 9e-4)),
        # unless torch rounds as much.
        (EXACT + OFF, 0.04, 1 / 0.08),
        (EXACT + OFF, 0.008, 1 / 0.016),
        # An offset of all lags does not change the choice.
        (EXACT + 1, None, np.inf),
    ],
)
def test_headroom_is_the_margin_over_the_rounding(found, rounding, expected):
    found = outputs(EXACT) | {"a.correlation": found}
    given = [] if rounding is None else [[np.array([rounding])]]
    assert headroom([STAGE], found, outputs(EXACT), *given) == pytest.approx(expected)
    if rounding is None:
        assert headroom([STAGE, DENSE], found, outputs(EXACT)) == pytest.approx(expected)


def test_score_errors_are_the_largest_rounding_errors():
    (own,) = score_errors([STAGE], outputs(EXACT - OFF / 10), outputs(EXACT))
    assert own == pytest.approx(0.004)


def test_ties_have_no_headroom():
    tied = outputs([[9.0, 1, 4, 4, 0, -1]])
    assert headroom([STAGE], tied, tied) == 0


def test_choice_of_all_lags_has_infinite_headroom():
    all_lags = outputs(EXACT, keep=LAGS)
    assert headroom([STAGE], outputs(EXACT + 0.1, keep=LAGS), all_lags) == np.inf
    assert margin_error([STAGE], outputs(EXACT + 0.1, keep=LAGS), all_lags) == 0


@pytest.mark.parametrize("plain", [DENSE, SPARSE, NONE])
def test_stage_without_a_choice_has_infinite_headroom(plain):
    assert headroom([plain], outputs(EXACT), outputs(EXACT)) == np.inf
    assert margin_error([plain], outputs(EXACT), outputs(EXACT)) == 0
    assert not choices_differ([plain], outputs(EXACT), outputs(EXACT))


@pytest.mark.parametrize(
    ("exact", "error", "expected"),
    [
        (EXACT, 1.0, 0),
        # The margin is the difference of lags 2 and 3; errors of other lags do not matter.
        (EXACT, np.array([-1, 0.5, 0.1, -0.1, 0.5, 0]), 0.02),
        # The margin is relative to the range of the lags, which need not include zero.
        (EXACT + 100, np.array([0, 0, 0.1, -0.1, 0, 0]), 0.02),
        (FLAT, 0.0, 0),
    ],
)
def test_margin_error_is_the_error_of_the_margin(exact, error, expected):
    found = outputs(exact) | {"a.correlation": exact + error}
    assert margin_error([STAGE], found, outputs(exact)) == pytest.approx(expected)


def test_range_of_scores_other_than_lags_includes_zero():
    scores = np.full((1, 2, LAGS, 4), 5.0) + np.arange(4) * 1e-6
    error = np.zeros_like(scores)
    error[0, 0, 0, 3] = 1e-6
    found, exact = bucketed(scores + error), bucketed(scores)
    assert margin_error([BUCKETS], found, exact) == pytest.approx(2e-7)


def test_margin_errors_are_by_window():
    exact = outputs(np.concatenate([EXACT, EXACT]))
    found = outputs(np.concatenate([EXACT, EXACT + np.eye(1, LAGS, 2)]))
    np.testing.assert_allclose(margin_error([STAGE], found, exact), [0, 0.1])


def test_sets_of_lags_are_compared_and_not_their_order():
    reordered = outputs(EXACT[:, [2, 1, 0, 3, 4, 5]])
    assert not choices_differ([STAGE], reordered, outputs(EXACT))
    assert attention_error(STAGE, reordered, outputs(EXACT)) == 0
    other = outputs(EXACT[:, [0, 2, 1, 3, 4, 5]])
    assert choices_differ([STAGE], other, outputs(EXACT))
    assert attention_error(STAGE, other, outputs(EXACT)) == np.inf


def test_attention_error_is_the_largest_error_of_a_weight():
    found = outputs(EXACT) | {"a.lag_weights": np.array([[0.6, 0.4]])}
    assert attention_error(STAGE, found, outputs(EXACT)) == pytest.approx(0.1)
    maps = [
        outputs(EXACT) | {"s.weights": np.full((1, 1, LAGS, LAGS), value)} for value in (0.25, 0.5)
    ]
    assert attention_error(DENSE, *maps) == 0.25


def test_attention_error_is_relative_to_a_large_weight_of_the_same_query():
    exact, found = (np.full((1, 1, LAGS, LAGS), 0.5) for _ in range(2))
    exact[0, 0, 0, :2] = -4, 3
    found[...] = exact
    found[0, 0, 0, 1] = 3.2
    maps = [outputs(EXACT) | {"s.weights": each} for each in (found, exact)]
    assert attention_error(DENSE, *maps) == pytest.approx(0.05)
    # A large weight of another query does not reduce the error.
    found[0, 0, 1, 1] = 0.7
    assert attention_error(DENSE, *maps) == pytest.approx(0.2)


def test_nan_weight_is_a_large_error():
    for name, of in (("a.lag_weights", STAGE), ("s.weights", DENSE), ("p.weights", SPARSE)):
        exact = outputs(EXACT) | sparse_outputs(np.random.default_rng(0), 1)
        exact["s.weights"] = np.full((1, 1, LAGS, LAGS), 0.25)
        broken = exact[name].copy()
        broken[0, ..., 0] = np.nan
        assert not attention_error(of, exact | {name: broken}, exact) <= 1


def test_buckets_of_every_head_and_query_have_a_margin():
    exact = np.random.default_rng(1).normal(size=(3, 2, LAGS, 4))
    exact[1, 1, 3] = [2, 2 - 1e-4, -2, 0]
    error = np.zeros_like(exact)
    error[1, 1, 3, 0] = 1e-5
    found, expected = bucketed(exact + error), bucketed(exact)
    # An error of 1e-5 in one of four is 0.75e-5 after the mean is subtracted.
    expected_headroom = [np.inf, 1e-4 / (2 * 0.75e-5), np.inf]
    np.testing.assert_allclose(headroom([DENSE, BUCKETS], found, expected), expected_headroom)
    np.testing.assert_allclose(margin_error([BUCKETS], found, expected), [0, 1e-5 / 4, 0])
    assert not choices_differ([BUCKETS], found, expected).any()


def test_one_bucket_of_another_head_differs():
    exact = np.random.default_rng(1).normal(size=(3, 2, LAGS, 4))
    other = exact.copy()
    other[2, 1, 5] *= -1
    pair = bucketed(other), bucketed(exact)
    assert choices_differ([BUCKETS], *pair).tolist() == [False, False, True]
    # A mechanism without a map has nothing else to compare.
    assert attention_error(BUCKETS, *pair).tolist() == [0, 0, np.inf]


def sparse_outputs(random, batch):
    keys = random.integers(-1, LAGS, (batch, 3, 2, LAGS, 2))
    return {
        "forecast": np.zeros((batch, 1, 1)),
        "p.keys": keys,
        "p.weights": random.uniform(size=keys.shape),
    }


def as_dense(given):
    """The map `[batch, channels, heads, query, key]` that keys and weights stand for."""
    keys, weights = given["p.keys"], given["p.weights"]
    return sum(
        (np.arange(LAGS) == keys[..., i, None]) * weights[..., i, None]
        for i in range(keys.shape[-1])
    )


def test_sparse_maps_are_compared_as_dense_maps():
    random = np.random.default_rng(2)
    for _ in range(20):
        found, exact = sparse_outputs(random, 4), sparse_outputs(random, 4)
        expected = np.abs(as_dense(found) - as_dense(exact)).reshape(4, -1).max(axis=1)
        np.testing.assert_allclose(attention_error(SPARSE, found, exact), expected, rtol=1e-12)


def test_order_of_keys_and_weights_of_absent_keys_do_not_matter():
    exact = sparse_outputs(np.random.default_rng(2), 4)
    keys, weights = exact["p.keys"], exact["p.weights"]
    turned = exact | {
        "p.keys": keys[..., ::-1],
        "p.weights": np.where(keys < 0, 9.0, weights)[..., ::-1],
    }
    assert attention_error(SPARSE, turned, exact).tolist() == [0] * 4


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (DENSE, "s.weights"),
        (STAGE, "a.lags"),
        (STAGE, "a.lag_weights"),
        (SPARSE, "p.keys"),
        (BUCKETS, "n.bucket"),
    ],
)
def test_a_missing_output_is_named(of, name):
    full = outputs(EXACT) | sparse_outputs(np.random.default_rng(0), 1) | {"s.weights": FLAT}
    full |= bucketed(np.zeros((1, 2, LAGS, 4)))
    partial = {key: value for key, value in full.items() if key != name}
    with pytest.raises(ExportError, match=f"{name}: the graph has no such output"):
        attention_error(of, partial, full)
    with pytest.raises(ExportError, match=f"{name}: the reference has no such output"):
        attention_error(of, full, partial)


@pytest.mark.parametrize("measure", [headroom, margin_error])
def test_missing_scores_are_named(measure):
    partial = {key: each for key, each in outputs(EXACT).items() if key != "a.correlation"}
    with pytest.raises(ExportError, match=r"a\.correlation: the graph has no such output"):
        measure([STAGE], partial, outputs(EXACT))


def test_a_map_of_another_shape_is_not_stretched():
    maps = [outputs(EXACT) | {"s.weights": np.ones((1, heads, LAGS, LAGS))} for heads in (1, 2)]
    with pytest.raises(ExportError, match=r"s\.weights: .* \[1, 1, 6, 6\] and \[1, 2, 6, 6\]"):
        attention_error(DENSE, *maps)


def test_nonfinite_scores_are_refused():
    scores = np.zeros((1, 2, LAGS, 4))
    scores[..., 1] = -np.inf
    with pytest.raises(ExportError, match=r"n\.scores: the scores of a choice must be finite"):
        headroom([BUCKETS], bucketed(scores), bucketed(scores))
