import pytest
import torch

from foretell.bundle.attention import Axis
from foretell.models.attention.auto_correlation import (
    AutoCorrelation,
    AutoCorrelationConfig,
    circulant,
    fit_length,
)
from foretell.models.attention.evidence import Circulant
from foretell.models.attention.mechanism import Site

LENGTHS = (4, 7, 12, 13, 96, 97)


def make(length: int = 16, **options: object) -> AutoCorrelation:
    torch.manual_seed(length)
    layer = AutoCorrelation(6, AutoCorrelationConfig(factor=2, **options))  # type: ignore[arg-type]
    return layer.eval()


def seen(layer: AutoCorrelation, tokens: torch.Tensor, source: torch.Tensor) -> Circulant:
    evidence = layer(tokens, source, explain=True).evidence
    assert isinstance(evidence, Circulant)
    return evidence


@pytest.mark.parametrize("length", LENGTHS)
def test_correlation_is_the_sum_over_time(length: int) -> None:
    layer = make(length)
    query, key = torch.randn(2, length, 6), torch.randn(2, length, 6)
    expected = torch.stack(
        [(query.roll(-lag, dims=1) * key).sum(1).mean(-1) for lag in range(length)], dim=1
    )
    torch.testing.assert_close(layer.correlate(query, key), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", LENGTHS)
def test_even_lags_equal_an_inverse_fft_of_default_length(length: int) -> None:
    query, key = torch.randn(2, length, 6), torch.randn(2, length, 6)
    found = make(length, lags="even").correlate(query, key)
    spectrum = torch.fft.rfft(query, dim=1) * torch.fft.rfft(key, dim=1).conj()
    expected = torch.fft.irfft(spectrum, dim=1).mean(-1)
    assert found.shape == (2, length - length % 2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if length % 2 == 0:
        torch.testing.assert_close(found, make(length).correlate(query, key))


@pytest.mark.parametrize("length", LENGTHS)
def test_circulant_is_a_weighted_sum_of_rolled_values(length: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(3, length, 5)
    lags = torch.stack([torch.randperm(length)[:3] for _ in range(3)])
    weights = torch.rand(3, 3).softmax(-1)
    expected = torch.stack(
        [
            sum(
                (
                    weight * values[row].roll(-int(lag), dims=0)
                    for lag, weight in zip(lags[row], weights[row], strict=True)
                ),
                start=torch.zeros(length, 5),
            )
            for row in range(3)
        ]
    )
    attention = circulant(lags, weights, length)
    torch.testing.assert_close(attention @ values, expected)
    torch.testing.assert_close(attention.sum(-1), torch.ones(3, length))


@pytest.mark.parametrize("length", [13, 96])
def test_lags_come_by_descending_correlation(length: int) -> None:
    tokens = torch.randn(2, length, 6)
    mixed = seen(make(length), tokens, tokens)
    strongest = mixed.correlation.sort(descending=True)
    keep = AutoCorrelationConfig(factor=2).kept(length)
    assert mixed.lags.shape == (2, keep)
    torch.testing.assert_close(mixed.correlation.gather(1, mixed.lags), strongest.values[:, :keep])
    torch.testing.assert_close(mixed.lag_weights, strongest.values[:, :keep].softmax(-1))


@pytest.mark.parametrize(("source", "length"), [(5, 9), (9, 5), (7, 7)])
def test_source_is_cut_or_filled_with_zeros(source: int, length: int) -> None:
    series = torch.randn(2, source, 3)
    fitted = fit_length(series, length)
    common = min(source, length)
    assert fitted.shape == (2, length, 3)
    assert torch.equal(fitted[:, :common], series[:, :common])
    assert not fitted[:, common:].any()


def test_zeros_are_appended_after_the_projection() -> None:
    # The padding is zero: a bias must not reach it.
    layer = make()
    tokens, source = torch.randn(1, 12, 6), torch.randn(1, 5, 6)
    key, value = (fit_length(part(source), 12) for part in (layer.key, layer.value))
    mixed = seen(layer, tokens, source)
    torch.testing.assert_close(mixed.correlation, layer.correlate(layer.query(tokens), key))
    attention = circulant(mixed.lags, mixed.lag_weights, 12)
    torch.testing.assert_close(layer(tokens, source).output, layer.out(attention @ value))


@pytest.mark.parametrize(
    ("query", "key", "compared"), [(12, 5, 7), (12, 9, 3), (9, 12, 9), (9, 9, 9)]
)
def test_longer_query_is_cut_to_its_first_steps(query: int, key: int, compared: int) -> None:
    layer = make(longer_query="cut")
    tokens, source = torch.randn(1, query, 6), torch.randn(1, key, 6)
    # Zeros, not the bias, replace the steps that are cut.
    rows = fit_length(layer.query(tokens)[:, :compared], query)
    expected = layer.correlate(rows, fit_length(layer.key(source), query))
    torch.testing.assert_close(seen(layer, tokens, source).correlation, expected)
    is_cut = compared < query
    whole = make().eval()
    whole.load_state_dict(layer.state_dict())
    assert torch.allclose(seen(whole, tokens, source).correlation, expected) != is_cut


def test_a_batch_shares_lags_in_training_only() -> None:
    layer = make()
    tokens = torch.randn(4, 24, 6)
    shared = seen(layer.train(), tokens, tokens)
    assert all(torch.equal(lags, shared.lags[0]) for lags in shared.lags)
    mean = shared.correlation.mean(0).topk(shared.lags.shape[1]).indices
    assert torch.equal(shared.lags[0], mean)
    torch.testing.assert_close(shared.lag_weights.sum(-1), torch.ones(4))
    own = seen(layer.eval(), tokens, tokens)
    assert not all(torch.equal(lags, own.lags[0]) for lags in own.lags)


def test_training_lags_of_each_sample() -> None:
    layer = make(training_lags="sample")
    tokens = torch.randn(4, 24, 6)
    own = seen(layer.train(), tokens, tokens).lags
    assert torch.equal(own, seen(layer.eval(), tokens, tokens).lags)


@pytest.mark.parametrize(("factor", "length", "count"), [(1, 96, 4), (3, 96, 13), (3, 97, 13)])
def test_lag_count(factor: float, length: int, count: int) -> None:
    assert AutoCorrelationConfig(factor=factor).kept(length) == count


def site(queries: int, keys: int, **changes: object) -> Site:
    given = {"query": Axis(length=queries, start=-4), "key": Axis(length=keys, start=-12)}
    return Site(**{"d_model": 8, "heads": 2} | given | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("query", "key", "padding"), [(10, 12, 0), (24, 12, 12)])
def test_keys_are_described_as_cut_or_padded(query: int, key: int, padding: int) -> None:
    (stage,) = AutoCorrelationConfig(factor=2, lags="even").describe("a", site(query, key))
    assert (stage.mechanism, stage.form) == ("autocorrelation", "circulant")
    assert (stage.key.length, stage.key.start, stage.key.padding) == (query, -12, padding)
    kept = AutoCorrelationConfig(factor=2).kept(query)
    assert [output.shape for output in stage.outputs] == [(kept,), (kept,), (query,)]
