import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.dlinear import DLinear, DLinearConfig
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

SIZES = {"channels": 3, "context": 24, "horizon": 10, "moving_average": 5}


def make(**changes: object) -> DLinear:
    torch.manual_seed(0)
    return DLinear(DLinearConfig.model_validate(SIZES | changes)).eval()


@pytest.mark.parametrize("individual", [False, True])
def test_channels_are_independent_and_have_no_attention(individual: bool) -> None:
    model, history = make(individual=individual), torch.randn(4, 24, 3)
    forecast, attention, *_ = model.explain(history)
    assert forecast.shape == (4, 10, 3)
    assert torch.equal(model(history), forecast)
    assert (attention, model.stages) == ({}, ())
    history[:, :, 1] += 1
    moved = (model(history) - forecast).abs().amax(dim=(0, 1)) > 0
    assert moved.tolist() == [False, True, False]


def test_forecast_is_a_map_of_trend_and_remainder() -> None:
    model, history = make(), torch.randn(2, 24, 3)
    trend = model.decomposition.average(history)
    expected = model.seasonal((history - trend).mT) + model.trend(trend.mT)
    torch.testing.assert_close(model(history), expected.mT)


def test_individual_maps_belong_to_their_channel() -> None:
    shared, own = make(), make(individual=True)
    for parts in (own.seasonal, own.trend):
        for part in parts:
            part.load_state_dict(shared.seasonal.state_dict())
    shared.trend.load_state_dict(shared.seasonal.state_dict())
    history = torch.randn(2, 24, 3)
    torch.testing.assert_close(own(history), shared(history))


def test_initial_forecast_is_the_mean_of_the_context() -> None:
    model, history = make(), torch.randn(1, 24, 3)
    level = model(history + 7) - model(history)
    torch.testing.assert_close(level, torch.full_like(level, 7))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"moving_average": 4}, "moving_average: expected an odd number, got 4"),
        ({"calendar": Calendar.for_frequency(Frequency.parse("h"), "scaled")}, "calendar: DLinear"),
        ({"d_model": 8}, "d_model"),
    ],
)
def test_refuses(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        make(**changes)
