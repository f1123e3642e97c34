import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.autoformer import Autoformer, AutoformerConfig
from foretell.models.attention.evidence import Circulant
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

CALENDAR = Calendar.for_frequency(Frequency.parse("h"), "scaled")
SIZES = {
    "channels": 3,
    "context": 24,
    "horizon": 10,
    "label": 8,
    "d_model": 8,
    "heads": 2,
    "d_ff": 16,
    "encoder_layers": 2,
    "moving_average": 5,
    "attention": {"mechanism": "autocorrelation", "factor": 2.0},
    "calendar": CALENDAR,
}


def mechanism(**settings: object) -> dict[str, object]:
    return {"attention": {"mechanism": "autocorrelation", "factor": 2.0, **settings}}


def make(**changes: object) -> Autoformer:
    torch.manual_seed(0)
    return Autoformer(AutoformerConfig.model_validate(SIZES | changes)).eval()


def batch(size: int = 2, context: int = 24, horizon: int = 10) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return torch.randn(size, context, 3), torch.rand(size, context, 4), torch.rand(size, horizon, 4)


def test_an_offset_goes_through_to_the_forecast() -> None:
    """The trend carries the level; the rest of the network sees what is left."""
    model, (history, *calendar) = make(), batch()
    for weight in model.encoder_embedding.parameters():
        torch.nn.init.zeros_(weight)
    shifted = model(history + 100, *calendar) - model(history, *calendar)
    torch.testing.assert_close(shifted, torch.full_like(shifted, 100), atol=1e-3, rtol=0)


def test_published_training_lets_the_batch_choose_lags() -> None:
    model, parts = make(dropout=0.0), batch(4)
    found = model.train().explain(*parts).attention["encoder.0.self"]
    assert isinstance(found, Circulant)
    assert all(torch.equal(lags, found.lags[0]) for lags in found.lags)
    single = make(dropout=0.0, **mechanism(training_lags="sample")).train()
    torch.testing.assert_close(single(*parts), make()(*parts))


def test_every_parameter_but_the_norms_biases_learns() -> None:
    model = make(dropout=0.0).train()
    model(*batch()).square().sum().backward()
    for name, weight in model.named_parameters():
        # The mean over time takes the bias of a seasonal norm away; a key's bias shifts all lags.
        if name.endswith(("_norm.norm.bias", "query.bias", "key.bias")):
            continue
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moving_average": 4}, "moving_average: expected an odd number, got 4"),
        (mechanism(factor=0.1), "factor: 0.1 keeps 0 of the 24 lags"),
        (mechanism(factor=9), "factor: 9 keeps 28 of the 24 lags"),
        ({"factor": 2.0}, "factor"),
        ({"heads": 3}, "heads: 3 heads do not divide"),
    ],
)
def test_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**changes)


def test_it_attends_by_any_mechanism() -> None:
    model = make(attention="softmax")
    explained = model.explain(*batch())
    assert {stage.form for stage in model.stages} == {"dense"}
    assert explained.attention["decoder.0.self"].weights.shape == (2, 2, 18, 18)
    torch.testing.assert_close(model(*batch()), explained.forecast)
