import pytest
import torch

from foretell.export.rewrites.auto_correlation import FoldedAutoCorrelation, correlator_for
from foretell.export.rewrites.fourier import FourierCorrelator
from foretell.export.rewrites.gram import GramCorrelator
from foretell.models.layers.auto_correlation import AutoCorrelation

# Even, odd and prime lengths, with queries shorter and longer than the keys.
LENGTHS = [(48, 48), (24, 48), (60, 48), (49, 49), (97, 97), (97, 60), (45, 72), (144, 96)]
FEATURES = 12


def layers(query: int, key: int | None, *, lags: str = "all", centre: bool = True):
    torch.manual_seed(query)
    plain = AutoCorrelation(FEATURES, 3, lags=lags).eval()
    correlator = correlator_for(query, plain.query.weight.dtype)
    return plain, FoldedAutoCorrelation(plain, correlator, key, centre=centre).eval()


def check(plain, folded, tokens, source, equal):
    expected = plain(tokens, tokens if source is None else source)
    found, mean = folded(tokens, source)
    assert torch.equal(expected.lags, found.lags)
    equal(found.lag_weights, expected.lag_weights)
    equal(found.correlation, expected.correlation)
    output = found.output + folded.missing_bias
    if folded.centre:
        output = output + mean @ folded.missing.T
    equal(output, tokens + expected.output)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize(("query", "key"), LENGTHS)
def test_equals_the_plain_layer_and_its_residual(query, key, lags, centre, float64, equal):
    plain, folded = layers(query, key, lags=lags, centre=centre)
    tokens, source = torch.randn(3, query, FEATURES) + 1, torch.randn(3, key, FEATURES) - 1
    check(plain, folded, tokens, source, equal)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize("length", [24, 45, 97, 144])
def test_equals_self_attention(length, lags, centre, float64, equal):
    plain, folded = layers(length, None, lags=lags, centre=centre)
    check(plain, folded, torch.randn(3, length, FEATURES) + 1, None, equal)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", [48, None])
def test_projecting_before_or_after_makes_no_difference(first, key, float64, equal):
    plain, folded = layers(48, key)
    folded.project_first = first
    source = None if key is None else torch.randn(2, key, FEATURES)
    check(plain, folded, torch.randn(2, 48, FEATURES), source, equal)


def test_the_form_depends_on_the_length_and_its_factors():
    assert isinstance(correlator_for(144, torch.float32), FourierCorrelator)
    assert isinstance(correlator_for(720, torch.float32), FourierCorrelator)
    assert isinstance(correlator_for(97, torch.float32), GramCorrelator)
    assert isinstance(correlator_for(48, torch.float32), GramCorrelator)


@pytest.mark.parametrize("length", [96, 97])
def test_an_offset_costs_no_precision(length):
    plain, folded = layers(length, None)
    tokens = 1e4 + torch.randn(20, length, FEATURES, dtype=torch.float64)
    expected = plain.double()(tokens, tokens).lags.sort().values
    found = folded(tokens.float()).mixed.lags.sort().values
    drowned = plain.float()(tokens.float(), tokens.float()).lags.sort().values
    assert (found == expected).all(dim=1).sum() >= 19
    assert (drowned == expected).all(dim=1).sum() < 10
