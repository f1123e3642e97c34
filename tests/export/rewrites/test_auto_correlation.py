import pytest
import torch

from foretell.export.rewrites.auto_correlation import (
    ServedAutoCorrelation,
    correlator_for,
    rewrite_auto_correlation,
)
from foretell.export.rewrites.fourier import FourierCorrelator
from foretell.export.rewrites.gram import GramCorrelator
from foretell.export.rewrites.lookup import Call
from foretell.models.attention.auto_correlation import AutoCorrelation, AutoCorrelationConfig

# Even, odd and prime lengths, with queries shorter and longer than the keys.
LENGTHS = [(48, 48), (24, 48), (60, 48), (49, 49), (97, 97), (97, 60), (45, 72), (144, 96)]
FEATURES = 12


def layers(query: int, key: int | None, *, centre: bool = True, **options: str):
    torch.manual_seed(query)
    plain = AutoCorrelation(FEATURES, AutoCorrelationConfig(**options)).eval()
    correlator = correlator_for(query, plain.query.weight.dtype)
    return plain, ServedAutoCorrelation(plain, correlator, key, centre=centre).eval()


def same_lags(found, expected, equal):
    assert torch.equal(expected.lags, found.lags)
    equal(found.lag_weights, expected.lag_weights)
    equal(found.correlation, expected.correlation)


def check(plain, served, tokens, source, equal):
    source = tokens if source is None else source
    expected, found = (layer(tokens, source, explain=True) for layer in (plain, served))
    same_lags(found.evidence, expected.evidence, equal)
    equal(found.output, expected.output)
    served.constant = False
    found = served(tokens, source).output
    varying = expected.output - expected.output.mean(dim=1, keepdim=True)
    equal(found - found.mean(dim=1, keepdim=True), varying)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize(("query", "key"), LENGTHS)
def test_equals_the_plain_layer(query, key, lags, centre, float64, equal):
    plain, served = layers(query, key, lags=lags, centre=centre)
    tokens, source = torch.randn(3, query, FEATURES) + 1, torch.randn(3, key, FEATURES) - 1
    check(plain, served, tokens, source, equal)


@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize(("query", "key"), [(60, 48), (97, 60), (144, 96), (144, 24), (24, 48)])
def test_equals_the_plain_layer_with_longer_queries_cut(query, key, lags, float64, equal):
    plain, served = layers(query, key, lags=lags, longer_query="cut")
    tokens, source = torch.randn(3, query, FEATURES) + 1, torch.randn(3, key, FEATURES) - 1
    check(plain, served, tokens, source, equal)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize("length", [24, 45, 97, 144])
def test_equals_self_attention(length, lags, centre, float64, equal):
    plain, served = layers(length, None, lags=lags, centre=centre)
    check(plain, served, torch.randn(3, length, FEATURES) + 1, None, equal)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", [48, None])
def test_projecting_before_or_after_makes_no_difference(first, key, float64, equal):
    plain, served = layers(48, key)
    served.project_first = first
    source = None if key is None else torch.randn(2, key, FEATURES)
    check(plain, served, torch.randn(2, 48, FEATURES), source, equal)


@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize(("query", "key"), [*LENGTHS, (48, None), (45, None)])
def test_by_itself_it_is_called_as_the_plain_one(query, key, lags, float64, equal):
    plain = AutoCorrelation(FEATURES, AutoCorrelationConfig(lags=lags)).eval()
    tokens = torch.randn(3, query, FEATURES) + 1
    source = tokens if key is None else torch.randn(3, key, FEATURES) - 1
    call = Call((tokens.shape, source.shape), itself=key is None)
    expected = plain(tokens, source, explain=True)
    found = rewrite_auto_correlation(plain, call)(tokens, source, inherited=None, explain=True)
    equal(found.output, expected.output)
    same_lags(found.evidence, expected.evidence, equal)


def test_the_form_depends_on_the_length_and_its_factors():
    assert isinstance(correlator_for(144, torch.float32), FourierCorrelator)
    assert isinstance(correlator_for(720, torch.float32), FourierCorrelator)
    assert isinstance(correlator_for(97, torch.float32), GramCorrelator)
    assert isinstance(correlator_for(48, torch.float32), GramCorrelator)


@pytest.mark.parametrize("length", [96, 97])
def test_an_offset_costs_no_precision(length):
    plain, served = layers(length, None)
    tokens = 1e4 + torch.randn(20, length, FEATURES, dtype=torch.float64)
    expected = plain.double()(tokens, tokens, explain=True).evidence.lags.sort().values
    found = served(tokens.float(), tokens.float()).evidence.lags.sort().values
    drowned = (
        plain.float()(tokens.float(), tokens.float(), explain=True).evidence.lags.sort().values
    )
    assert (found == expected).all(dim=1).sum() >= 19
    assert (drowned == expected).all(dim=1).sum() < 10
