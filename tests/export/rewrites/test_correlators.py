"""Both forms of a correlator against the sums they stand for."""

import pytest
import torch

from foretell.export.rewrites.correlator import Correlator
from foretell.export.rewrites.fourier import FourierCorrelator, best_divisor, multiplications
from foretell.export.rewrites.gram import GramCorrelator

# Composite, odd, prime and very short lengths, in every factorisation there is.
LENGTHS = (1, 2, 7, 12, 15, 24, 31, 36)
FEATURES = 5


def forms(length: int) -> list[Correlator]:
    divisors = [coarse for coarse in range(1, length + 1) if length % coarse == 0]
    return [
        GramCorrelator(length, torch.float64),
        *(FourierCorrelator(length, coarse, torch.float64) for coarse in divisors),
    ]


def fitted(series: torch.Tensor, length: int) -> torch.Tensor:
    """Cut or continued by zeros."""
    missing = max(length - series.shape[1], 0)
    return torch.nn.functional.pad(series[:, :length], (0, 0, 0, missing))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("steps", ["shorter", "equal", "longer"])
def test_correlation_is_the_sum_of_lagged_products(length, steps, float64, equal):
    torch.manual_seed(length)
    known = {"shorter": max(length // 2, 1), "equal": length, "longer": length + 3}[steps]
    query, key = torch.randn(3, length, FEATURES), torch.randn(3, known, FEATURES)
    query -= query.mean(dim=1, keepdim=True)
    padded = fitted(key, length)
    expected = torch.stack(
        [(query.roll(-lag, 1) * padded).sum(dim=(1, 2)) for lag in range(length)], dim=1
    )
    for form in forms(length):
        equal(form.correlate(form.represent(query), form.represent(key)), expected)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("steps", ["shorter", "equal", "longer"])
def test_mixture_is_the_weighted_sum_of_lagged_values(length, steps, float64, equal):
    torch.manual_seed(length)
    known = {"shorter": max(length // 2, 1), "equal": length, "longer": length + 3}[steps]
    by_lag, value = torch.randn(3, length), torch.randn(3, known, FEATURES)
    padded = fitted(value, length)
    expected = sum(by_lag[:, lag, None, None] * padded.roll(-lag, 1) for lag in range(length))
    for form in forms(length):
        equal(form.mix(by_lag, form.represent(value)), expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_features_may_be_mapped_in_a_representation(length, float64, equal):
    torch.manual_seed(length)
    series, weight = torch.randn(2, length, FEATURES), torch.randn(FEATURES, 4)
    for form in forms(length):
        represented = form.represent(series)
        equal(represented @ weight, form.represent(series @ weight))
        assert represented[0, ..., 0].numel() == form.rows(length)


@pytest.mark.parametrize(
    ("length", "coarse"), [(1, 1), (8, 1), (96, 12), (98, 14), (97, 97), (106, 53), (720, 90)]
)
def test_best_divisor_is_that_with_about_eight_fine_steps(length, coarse):
    assert best_divisor(length) == coarse


def test_multiplications_of_a_long_transform_are_few():
    assert multiplications(720, best_divisor(720)) < 0.2 * 2 * 720**2
    assert multiplications(97, 97) > 2 * 97**2
