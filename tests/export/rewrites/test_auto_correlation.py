import pytest
import torch

from foretell.export.rewrites import inference_form
from foretell.export.rewrites.auto_correlation import (
    ServedAutoCorrelation,
    correlator_for,
)
from foretell.export.rewrites.correlator import Correlator
from foretell.export.rewrites.fourier import FourierCorrelator, best_divisor, multiplications
from foretell.export.rewrites.gram import GramCorrelator
from foretell.export.rewrites.margins import choose_lags, extremes, smallest_margin
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.attention.auto_correlation import AutoCorrelation, AutoCorrelationConfig
from tests.checkpoints import SMALL, randomised
from tests.export.rewrites.test_inference_form import inputs

# Even, odd and prime lengths, with queries shorter and longer than the keys.
LENGTHS = [(48, 48), (24, 48), (60, 48), (49, 49), (97, 97), (97, 60), (45, 72), (144, 96)]
FEATURES = 12


def layers(query: int, key: int | None, *, centre: bool = True, **options: str):
    torch.manual_seed(query)
    plain = AutoCorrelation(FEATURES, AutoCorrelationConfig(**options)).eval()
    correlator = correlator_for(query, plain.query.weight.dtype)
    return plain, ServedAutoCorrelation(plain, correlator, key, centre=centre).eval()


def check(plain, served, tokens, source, equal):
    source = tokens if source is None else source
    expected, found = (layer(tokens, source, explain=True) for layer in (plain, served))
    assert torch.equal(expected.evidence.lags, found.evidence.lags)
    equal(found.evidence.lag_weights, expected.evidence.lag_weights)
    equal(found.evidence.correlation, expected.evidence.correlation)
    equal(found.output, expected.output)
    served.constant = False
    found = served(tokens, source).output
    varying = expected.output - expected.output.mean(dim=1, keepdim=True)
    equal(found - found.mean(dim=1, keepdim=True), varying)


# Keys of the queries' tokens, keys of other tokens, and a part of the queries.
@pytest.mark.parametrize("lags", ["all", "even"])
@pytest.mark.parametrize(
    ("query", "key", "options"),
    [
        *((*lengths, {"centre": centre}) for lengths in LENGTHS for centre in (True, False)),
        *(
            (query, key, {"longer_query": "cut"})
            for query, key in ((60, 48), (97, 60), (144, 96), (144, 24), (24, 48))
        ),
        *((query, None, {"centre": each}) for query in (24, 45, 97, 144) for each in (True, False)),
    ],
)
def test_equals_the_plain_layer(query, key, options, lags, float64, equal):
    plain, served = layers(query, key, lags=lags, **options)
    source = None if key is None else torch.randn(3, key, FEATURES) - 1
    check(plain, served, torch.randn(3, query, FEATURES) + 1, source, equal)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", [48, None])
def test_projecting_before_or_after_makes_no_difference(first, key, float64, equal):
    plain, served = layers(48, key)
    served.project_first = first
    source = None if key is None else torch.randn(2, key, FEATURES)
    check(plain, served, torch.randn(2, 48, FEATURES), source, equal)


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


# Composite, odd, prime and very short lengths, in every factorisation there is.
CORRELATED = (1, 2, 7, 12, 15, 24, 31, 36)


def correlators(length: int) -> list[Correlator]:
    divisors = [coarse for coarse in range(1, length + 1) if length % coarse == 0]
    return [
        GramCorrelator(length, torch.float64),
        *(FourierCorrelator(length, coarse, torch.float64) for coarse in divisors),
    ]


def fitted(series: torch.Tensor, length: int) -> torch.Tensor:
    """Cut or continued by zeros."""
    missing = max(length - series.shape[1], 0)
    return torch.nn.functional.pad(series[:, :length], (0, 0, 0, missing))


@pytest.mark.parametrize("length", CORRELATED)
@pytest.mark.parametrize("steps", ["shorter", "equal", "longer"])
def test_correlators_sum_lagged_products_and_mix_lagged_values(length, steps, float64, equal):
    torch.manual_seed(length)
    known = {"shorter": max(length // 2, 1), "equal": length, "longer": length + 3}[steps]
    query, key = torch.randn(3, length, FEATURES), torch.randn(3, known, FEATURES)
    query -= query.mean(dim=1, keepdim=True)
    by_lag, padded = torch.randn(3, length), fitted(key, length)
    rolled = [padded.roll(-lag, 1) for lag in range(length)]
    products = [(query.roll(-lag, 1) * padded).sum(dim=(1, 2)) for lag in range(length)]
    mixture = sum(by_lag[:, lag, None, None] * each for lag, each in enumerate(rolled))
    for form in correlators(length):
        equal(form.correlate(form.represent(query), form.represent(key)), torch.stack(products, 1))
        equal(form.mix(by_lag, form.represent(key)), mixture)


@pytest.mark.parametrize("length", CORRELATED)
def test_features_may_be_mapped_in_a_representation(length, float64, equal):
    torch.manual_seed(length)
    series, weight = torch.randn(2, length, FEATURES), torch.randn(FEATURES, 4)
    for form in correlators(length):
        represented = form.represent(series)
        equal(represented @ weight, form.represent(series @ weight))
        assert represented[0, ..., 0].numel() == form.rows(length)


@pytest.mark.parametrize(
    ("length", "coarse"), [(1, 1), (8, 1), (96, 12), (98, 14), (97, 97), (106, 53), (720, 90)]
)
def test_best_divisor_has_about_eight_fine_steps(length, coarse):
    assert best_divisor(length) == coarse


def test_multiplications_of_a_long_transform_are_few():
    assert multiplications(720, best_divisor(720)) < 0.2 * 2 * 720**2
    assert multiplications(97, 97) > 2 * 97**2


@pytest.mark.parametrize("keep", [1, 3, 7])
def test_chosen_lags_equal_a_plain_topk(keep):
    correlation = torch.randn(20, 8)
    choice = choose_lags(correlation, keep)
    strongest, lags = correlation.topk(keep)
    assert torch.equal(choice.lags[:, :keep], lags)
    # Equal up to rounding: processors sum seven numbers in another order than eight.
    weights = strongest.softmax(dim=-1)
    torch.testing.assert_close(choice.weights[:, :keep], weights, rtol=1e-6, atol=0)
    assert torch.equal(choice.weights[:, keep:], torch.zeros(20, 1))
    ranked = correlation.sort(dim=1, descending=True).values
    assert torch.equal(choice.extremes, ranked[:, [*range(keep + 1), 7]])


def test_choice_of_all_lags():
    correlation = torch.randn(3, 5)
    choice = choose_lags(correlation, 5)
    assert choice.extremes is None
    assert torch.equal(choice.lags, correlation.argsort(dim=1, descending=True))
    assert torch.equal(choice.weights, correlation.sort(dim=1, descending=True)[0].softmax(dim=-1))


def test_margin_is_relative_to_the_range_and_the_smallest_of_all():
    clear = choose_lags(torch.tensor([[8.0, 5.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]]), 2)
    narrow = choose_lags(torch.tensor([[4.0, 2.0, 1.5, 0.0, 0.5], [8.0, 7.0, 6.0, 0.0, 0.0]]), 3)
    assert smallest_margin([clear.extremes]).tolist() == [1 / 2, 0]
    assert smallest_margin([clear.extremes, narrow.extremes]).tolist() == [1 / 4, 0]


def test_an_offset_of_the_correlation_has_no_influence_on_the_margin(float64):
    correlation = torch.randn(5, 12)
    moved = choose_lags(correlation + 1e6, 4).extremes
    torch.testing.assert_close(
        smallest_margin([moved]), smallest_margin([choose_lags(correlation, 4).extremes])
    )


def margin_of(form, history: torch.Tensor) -> torch.Tensor:
    return smallest_margin([seen.extremes for seen in form.explain(history).attention.values()])


def test_an_offset_of_the_data_has_no_influence_on_the_margin(float64):
    config = AutoformerConfig(**SMALL, label=0, moving_average=13)
    form = inference_form(randomised(config))
    history = inputs(config).history
    margin = margin_of(form, history)
    torch.testing.assert_close(margin_of(form, history + 1000), margin, rtol=1e-6, atol=0)


def test_the_margin_of_a_choice_in_many_places_is_the_smallest():
    scores = torch.randn(5, 3, 4, 8)
    found = smallest_margin([extremes(scores, 2)])
    rows = [extremes(row, 2) for row in scores.flatten(1, 2).unbind(1)]
    torch.testing.assert_close(found, smallest_margin(rows))


def test_margin_of_a_range_that_includes_zero():
    scores = torch.tensor([[5.0, 3.0, 4.0], [-5.0, -3.0, -4.0], [5.0, -3.0, 4.0]])
    found = smallest_margin([extremes(scores, 1, to_zero=True)])
    torch.testing.assert_close(found, torch.tensor([1 / 5, 1 / 5, 1 / 8]))
    # These differ by rounding only.
    alike = 5 + torch.tensor([[0, 1e-6, 2e-6, 0]])
    assert smallest_margin([extremes(alike, 1, to_zero=True)]) < 1e-6
    assert smallest_margin([extremes(alike, 1)]) > 0.1
