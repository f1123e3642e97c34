import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.itransformer import ITransformer, ITransformerConfig
from foretell.models.attention.evidence import Dense
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

HOURLY = Calendar.for_frequency(Frequency.parse("h"), "scaled")
SIZES = {
    "channels": 3,
    "context": 24,
    "horizon": 10,
    "d_model": 8,
    "heads": 2,
    "d_ff": 16,
    "encoder_layers": 2,
    "calendar": HOURLY,
}


def make(**changes: object) -> ITransformer:
    torch.manual_seed(0)
    return ITransformer(ITransformerConfig.model_validate(SIZES | changes)).eval()


def batch(size: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(size, 24, 3), torch.rand(size, 24, 4)


@pytest.mark.parametrize("calendar", [HOURLY, None])
def test_channels_attend_to_channels_and_to_the_calendar(calendar: Calendar | None) -> None:
    model, (history, times) = make(calendar=calendar), batch()
    explained = model.explain(history, times if calendar else None)
    assert explained.forecast.shape == (2, 10, 3)
    assert list(explained.attention) == [stage.name for stage in model.stages]
    tokens = 3 + (4 if calendar else 0)
    for stage in model.stages:
        assert (stage.query, stage.key) == (stage.key, stage.query)
        assert (stage.key.of, stage.key.length) == ("channels", tokens)
        assert stage.key.padding == tokens - 3
        seen = explained.attention[stage.name]
        assert isinstance(seen, Dense)
        assert seen.weights.shape == (2, 2, tokens, tokens)
    torch.testing.assert_close(model(history, times if calendar else None), explained.forecast)


def test_calendar_changes_the_forecast() -> None:
    model, (history, times) = make(), batch()
    assert not torch.allclose(model(history, times), model(history, times + 1))


def test_yearly_data_has_no_calendar() -> None:
    assert ITransformerConfig.calendar_for(Frequency.parse("h"), {}) == HOURLY
    assert ITransformerConfig.calendar_for(Frequency.parse("YS"), {}) is None


def test_mechanism_between_steps_is_refused() -> None:
    with pytest.raises(ValidationError, match="autocorrelation is between steps alone"):
        make(attention="autocorrelation")


def test_a_forecast_is_of_the_token_of_its_channel() -> None:
    model, (history, times) = make(), batch()
    for layer in model.encoder_layers:
        torch.nn.init.zeros_(layer.attention.out.weight)
    # Now no channel reads another.
    before = model(history, times)
    history[:, 5:, 1] += torch.arange(19)
    moved = (model(history, times) - before).abs().amax(dim=(0, 1)) > 0
    assert moved.tolist() == [False, True, False]
