import numpy as np
import pytest
from pydantic import ValidationError

from foretell.bundle import distribution
from foretell.bundle import special as functions
from foretell.bundle.distribution import LARGEST_MEAN, Distribution

LEVELS = (1e-6, 0.001, 0.025, 0.1, 0.4, 0.49999, 0.5, 0.6, 0.9, 0.999, 1 - 1e-6)


def test_parameters_must_fit_the_family() -> None:
    assert Distribution.of("student-t").parameters == ("df", "loc", "scale")
    with pytest.raises(ValidationError, match="parameters: expected loc, scale"):
        Distribution(family="normal", parameters=("scale", "loc"))


@pytest.mark.parametrize("level", LEVELS)
def test_students_t_is_scipys(level: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="what it is compared with")
    random = np.random.default_rng(0)
    df = np.array([2, 2.001, 2.5, 3, 4.5, 30, 1e3, 1e7, *(2 + random.exponential(5, 30))])
    parameters = np.stack([df, df * 0 - 2, df * 0 + 3], axis=-1)
    found = Distribution.of("student-t").quantile(parameters, level)
    wanted = stats.t.ppf(level, df)
    np.testing.assert_allclose(found, wanted * 3 - 2, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("level", LEVELS)
def test_normal_is_scipys(level: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="what it is compared with")
    found = Distribution.of("normal").quantile(np.array([[3.0, 2.0]]), level)
    np.testing.assert_allclose(found, stats.norm.ppf(level, 3, 2), rtol=1e-12)


@pytest.mark.parametrize("level", [1e-4, 0.025, 0.5, 0.9, 0.9999])
def test_negative_binomial_is_scipys(level: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="what it is compared with")
    random = np.random.default_rng(1)
    count, logits = np.exp(random.uniform(-3, 4, 60)), random.uniform(-6, 3, 60)
    parameters = np.stack([count, logits], axis=-1).reshape(6, 10, 2)
    found = Distribution.of("negative-binomial").quantile(parameters, level)
    wanted = stats.nbinom.ppf(level, count, 1 / (1 + np.exp(logits)))
    np.testing.assert_array_equal(found, wanted.reshape(6, 10))


@pytest.mark.parametrize("level", [1e-6, 0.025, 0.3, 0.5, 0.9, 0.999, 1 - 1e-6])
def test_large_counts_are_scipys(level: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="what it is compared with")
    random = np.random.default_rng(2)
    count, mean = np.exp(random.uniform(-4, 16, 300)), np.exp(random.uniform(0, 13.8, 300))
    parameters = np.stack([count, np.log(mean / count)], axis=-1)
    found = Distribution.of("negative-binomial").quantile(parameters, level)
    wanted = stats.nbinom.ppf(level, count, count / (count + mean))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=0)
    assert (found == wanted).mean() > 0.98


def test_search_for_a_count_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large count takes no more steps of the continued fraction than a small one."""
    random = np.random.default_rng(3)
    count, mean = np.exp(random.uniform(-1, 11, 400)), np.exp(random.uniform(0, 13.8, 400))
    parameters = np.stack([count, np.log(mean / count)], axis=-1)
    steps, original = [], functions._apart

    def counted(values, least):
        steps.append(len(values))
        return original(values, least)

    monkeypatch.setattr(functions, "_apart", counted)
    for level in (0.5, 0.999):
        Distribution.of("negative-binomial").quantile(parameters, level)
    assert sum(steps) < 1000 * len(parameters)
    assert len(steps) < 20_000


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("high", [1.0, 2e3, 1e6])
def test_poisson_quantile_is_the_smallest_count_of_the_level(level: float, high: float) -> None:
    special = pytest.importorskip("scipy.special", reason="what it is compared with")
    random = np.random.default_rng(4)
    rate = np.exp(random.uniform(np.log(high * 1e-6), np.log(high), 2000))
    rate[:2] = high, 1e-6
    found = Distribution.of("poisson").quantile(rate.reshape(20, 100, 1), level).ravel()
    # The share of counts up to k is the upper incomplete gamma function of k + 1.
    share = special.gammaincc(found + 1, rate)
    before = np.where(found > 0, special.gammaincc(np.maximum(found, 1), rate), 0)
    rounding = 1e-12
    assert (share >= level - rounding).all()
    assert (before < level + rounding).all()


def test_poisson_quantiles_next_to_the_level_of_a_count() -> None:
    """Rates at which the probability up to a count is exactly the level, and rates beside them."""
    special = pytest.importorskip("scipy.special", reason="finds the rates")
    counts = np.array([0.0, 1, 5, 30, 999, 1500, 40_000, 600_000])
    for level in (1e-6, 0.025, 0.5, 0.9, 0.999, 1 - 1e-6):
        at = special.gammainccinv(counts + 1, level)
        rows = np.stack([at * (1 - 1e-8), at * (1 + 1e-8)])[..., None]
        found = Distribution.of("poisson").quantile(rows, level)
        assert found.tolist() == [counts.tolist(), (counts + 1).tolist()]


@pytest.mark.parametrize("level", [1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])
def test_search_for_a_poisson_quantile_of_a_large_rate(level: float) -> None:
    special = pytest.importorskip("scipy.special", reason="finds the rates")
    rate = np.array([5e3, 1e5, LARGEST_MEAN])
    shares = distribution._poisson_shares
    found = distribution._searched(rate, np.zeros(3), -rate, level, shares)
    share, before = special.gammaincc(found + 1, rate), special.gammaincc(found, rate)
    assert (before < level).all()
    assert (share >= level).all()
    np.testing.assert_allclose(shares(rate, rate, found)[0], share, rtol=1e-6, atol=1e-15)


def test_a_poisson_by_hand() -> None:
    """Probabilities up to 0, 1 and 2 at a rate of 1: exp(-1) = 0.37, 0.74 and 0.92."""
    rate = np.array([1.0])
    found = [Distribution.of("poisson").quantile(rate, p) for p in (0.36, 0.37, 0.73, 0.74, 0.92)]
    assert found == [0, 1, 1, 2, 3]
    odd = np.array([[0.0], [-1], [LARGEST_MEAN * 1.01], [np.nan]])
    quantiles = Distribution.of("poisson").quantile(odd, 0.9)
    np.testing.assert_array_equal(quantiles, [0, np.nan, np.nan, np.nan])


def test_negative_binomial_near_poisson_and_zero() -> None:
    rows = np.array([[1e30, np.log(10) - np.log(1e30)], [1e-30, 0], [2, -800]])
    found = Distribution.of("negative-binomial").quantile(rows, 0.999)
    # At a mean of 10 the probability up to 21 is 0.9993, and up to 20 it is 0.9984.
    assert found.tolist() == [21, 0, 0]


@pytest.mark.parametrize("level", [0.5 - 1e-9, 0.5, 0.5 + 1e-9])
def test_level_just_outside_is_the_outermost_level(level: float) -> None:
    one = Distribution.of_quantiles((0.5,))
    assert one.quantile(np.array([[3.0]]), level).tolist() == [3.0]


def test_quantiles_between_levels_are_interpolated() -> None:
    described = Distribution.of_quantiles((0.1, 0.5, 0.9))
    assert described.parameters == ("0.1", "0.5", "0.9")
    rows = np.array([[1.0, 2.0, 6.0], [7.0, 3.0, 5.0]], np.float32)
    # The second row is sorted first.
    assert described.quantile(rows, 0.1).tolist() == [1, 3]
    assert described.quantile(rows, 0.5).tolist() == [2, 5]
    assert described.quantile(rows, 0.6).tolist() == pytest.approx([3, 5.5])
    # Rounding makes this level less than 0.1.
    assert described.quantile(rows, (1 - 0.8) / 2).tolist() == [1, 3]
    assert described.quantile(rows, (1 + 0.8) / 2).tolist() == [6, 7]
    found = described.quantile(np.array([[np.nan, 1, 2], [1, np.inf, 2]]), 0.1)
    assert np.isnan(found).all()


@pytest.mark.parametrize("level", [0.0999, 0.9001, float("nan")])
def test_level_beyond_the_stored_levels_is_refused(level: float) -> None:
    described = Distribution.of_quantiles((0.1, 0.9))
    with pytest.raises(ValueError, match="level: expected one from"):
        described.quantile(np.zeros((1, 2)), level)


@pytest.mark.parametrize("levels", [(), (0.5, 0.1), (0.1, 0.1), (0.0, 0.5), (0.5, 1.0)])
def test_levels_ascend_between_0_and_1(levels: tuple[float, ...]) -> None:
    with pytest.raises(
        ValidationError, match="levels: expected numbers between 0 and 1, ascending"
    ):
        Distribution.of_quantiles(levels)


def test_only_the_family_quantiles_has_levels() -> None:
    for fields in ({"family": "quantiles"}, {"family": "normal", "levels": (0.5,)}):
        with pytest.raises(ValidationError, match="levels: the family quantiles needs them"):
            Distribution(parameters=("loc", "scale"), **fields)
    with pytest.raises(ValidationError, match="parameters: expected 0"):
        Distribution(family="quantiles", levels=(0.1, 0.5), parameters=("0.5", "0.1"))


def test_quantile_of_nonfinite_parameters_is_nan() -> None:
    rows = np.array([[np.nan, 0, 1], [3, np.inf, 1], [3, 5, 1]], np.float32)
    found = Distribution.of("student-t").quantile(rows, 0.5)
    assert np.isnan(found[:2]).all()
    assert found[2] == pytest.approx(5)
    many = np.array([[2.0, np.log(LARGEST_MEAN)], [-1, 0], [2, 800]])
    assert np.isnan(Distribution.of("negative-binomial").quantile(many, 0.5)).all()


def test_quantiles_never_decrease_with_the_level() -> None:
    rows = np.array([[2.2, 1.0, 2.0], [9, -1, 0.5]])
    found = [Distribution.of("student-t").quantile(rows, level) for level in LEVELS]
    assert (np.diff(found, axis=0) >= 0).all()


def test_series_of_several_levels_equal_those_of_one() -> None:
    levels = (0.005, 0.5, 0.31, 0.995)
    together = distribution.student_t_series(*levels)
    alone = [distribution.student_t_series(level)[:, 0] for level in levels]
    np.testing.assert_allclose(together, np.stack(alone, axis=-1), rtol=0, atol=1e-11)
    np.testing.assert_allclose(together[:, 0], -together[:, 3], rtol=0, atol=1e-11)
