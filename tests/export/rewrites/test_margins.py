import pytest
import torch

from foretell.export.rewrites import inference_form
from foretell.export.rewrites.margins import choose_lags, extremes, smallest_margin
from foretell.models.architectures.autoformer import AutoformerConfig
from tests.checkpoints import SMALL, randomised
from tests.export.rewrites.test_inference_form import inputs


@pytest.mark.parametrize("keep", [1, 3, 7])
def test_keeps_what_a_search_for_them_alone_finds(keep):
    correlation = torch.randn(20, 8)
    choice = choose_lags(correlation, keep)
    strongest, lags = correlation.topk(keep)
    assert torch.equal(choice.lags[:, :keep], lags)
    # By a rounding or two: processors sum seven numbers otherwise than eight.
    weights = strongest.softmax(dim=-1)
    torch.testing.assert_close(choice.weights[:, :keep], weights, rtol=1e-6, atol=0)
    assert torch.equal(choice.weights[:, keep:], torch.zeros(20, 1))
    ranked = correlation.sort(dim=1, descending=True).values
    assert torch.equal(choice.extremes, ranked[:, [*range(keep + 1), 7]])


def test_all_lags():
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
    (history,) = inputs(config)
    margin = margin_of(form, history)
    torch.testing.assert_close(margin_of(form, history + 1000), margin, rtol=1e-6, atol=0)


def test_the_margin_of_a_choice_in_many_places_is_the_smallest():
    scores = torch.randn(5, 3, 4, 8)
    found = smallest_margin([extremes(scores, 2)])
    rows = [extremes(row, 2) for row in scores.flatten(1, 2).unbind(1)]
    torch.testing.assert_close(found, smallest_margin(rows))


def test_a_range_that_reaches_to_zero():
    scores = torch.tensor([[5.0, 3.0, 4.0], [-5.0, -3.0, -4.0], [5.0, -3.0, 4.0]])
    found = smallest_margin([extremes(scores, 1, to_zero=True)])
    torch.testing.assert_close(found, torch.tensor([1 / 5, 1 / 5, 1 / 8]))
    # Nothing but rounding tells these apart.
    alike = 5 + torch.tensor([[0, 1e-6, 2e-6, 0]])
    assert smallest_margin([extremes(alike, 1, to_zero=True)]) < 1e-6
    assert smallest_margin([extremes(alike, 1)]) > 0.1
