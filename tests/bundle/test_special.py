from __future__ import annotations

import math

import numpy as np
import pytest

from foretell.bundle.special import incomplete_beta, log_gamma


def test_gamma_function_is_a_factorial() -> None:
    counts = np.arange(1.0, 60.0)
    wanted = [math.lgamma(count) for count in counts]
    np.testing.assert_allclose(log_gamma(counts), wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("x", [0.0, 0.01, 0.3, 0.5, 0.99, 1.0])
def test_beta_function_of_whole_numbers_is_a_binomial_sum(x: float) -> None:
    for a, b in ((1, 1), (2, 5), (7, 3), (12, 12)):
        trials = a + b - 1
        terms = (
            math.comb(trials, k) * x**k * (1 - x) ** (trials - k) for k in range(a, trials + 1)
        )
        found = incomplete_beta(np.array([float(a)]), np.array([float(b)]), np.array([x]))
        np.testing.assert_allclose(found, [sum(terms)], rtol=1e-12, atol=1e-15)
