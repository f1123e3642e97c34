import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.autoformer import Autoformer, AutoformerConfig
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


def make(**changes: object) -> Autoformer:
    torch.manual_seed(0)
    return Autoformer(AutoformerConfig.model_validate(SIZES | changes)).eval()


def batch(size: int = 2, context: int = 24, horizon: int = 10) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return torch.randn(size, context, 3), torch.rand(size, context, 4), torch.rand(size, horizon, 4)


def test_offset_of_the_history_shifts_the_forecast() -> None:
    """The trend carries the level; the rest of the network sees what is left."""
    model, (history, *calendar) = make(), batch()
    for weight in model.encoder_embedding.parameters():
        torch.nn.init.zeros_(weight)
    shifted = model(history + 100, *calendar) - model(history, *calendar)
    torch.testing.assert_close(shifted, torch.full_like(shifted, 100), atol=1e-3, rtol=0)


def test_all_parameters_but_norm_biases_get_gradients() -> None:
    model = make(dropout=0.0).train()
    model(*batch()).square().sum().backward()
    for name, weight in model.named_parameters():
        # A seasonal norm subtracts the mean over time, and with it the bias. Biases of queries and
        # keys shift all lags alike.
        if name.endswith(("_norm.norm.bias", "query.bias", "key.bias")):
            continue
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moving_average": 4}, "moving_average: expected an odd number, got 4"),
        ({"attention": {"mechanism": "autocorrelation", "factor": 9}}, "factor: 9 keeps 28 of"),
        ({"factor": 2.0}, "factor"),
    ],
)
def test_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**changes)
