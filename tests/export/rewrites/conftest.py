import pytest
import torch


@pytest.fixture
def equal():
    """Asserts that a rewrite gives what it replaces gives."""

    def check(found: torch.Tensor, expected: torch.Tensor) -> None:
        assert found.shape == expected.shape
        scale = expected.abs().max().clamp_min(1e-6)
        torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-12)

    return check
