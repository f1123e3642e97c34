import pytest
import torch

from export.rewrites.auto_correlation import GramCorrelation
from models.layers.auto_correlation import AutoCorrelation

# Even, odd and prime lengths, with queries shorter and longer than the keys.
LENGTHS = [(48, 48), (24, 48), (60, 48), (49, 49), (97, 97), (97, 60), (45, 72)]


def layers(query: int, lags: str = "all", features: int = 12):
    torch.manual_seed(query)
    plain = AutoCorrelation(features, 3, lags=lags).double().eval()
    return plain, GramCorrelation(plain, query).double().eval()


@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize(("query", "key"), LENGTHS)
def test_equals_the_plain_layer(query, key, lags):
    plain, rewritten = layers(query, lags)
    tokens = torch.randn(3, query, 12, dtype=torch.float64)
    source = torch.randn(3, key, 12, dtype=torch.float64)
    expected, found = plain(tokens, source), rewritten(tokens, source)
    assert torch.equal(expected.lags, found.lags)
    for name in ("output", "lag_weights", "correlation"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), rtol=1e-11, atol=1e-11
        )


def test_an_offset_costs_no_precision():
    plain, rewritten = layers(96)
    tokens = 1e4 + torch.randn(20, 96, 12, dtype=torch.float64)
    expected = plain(tokens, tokens).lags.sort().values
    found = rewritten.float()(tokens.float(), tokens.float()).lags.sort().values
    drowned = plain.float()(tokens.float(), tokens.float()).lags.sort().values
    assert (found == expected).all(dim=1).sum() >= 19
    assert (drowned == expected).all(dim=1).sum() < 10
