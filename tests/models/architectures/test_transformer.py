import pytest
import torch

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.models.architectures.transformer import Transformer, TransformerConfig
from foretell.models.attention.evidence import Dense

HOURLY = Frequency.parse("h")
SIZES = {
    "channels": 3,
    "context": 24,
    "horizon": 10,
    "label": 8,
    "d_model": 8,
    "heads": 2,
    "d_ff": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "calendar": Calendar.for_frequency(HOURLY, "scaled"),
}


def make(**changes: object) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig.model_validate(SIZES | changes)).eval()


def batch(size: int = 2) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return torch.randn(size, 24, 3), torch.rand(size, 24, 4), torch.rand(size, 10, 4)


def test_shapes_of_all_stages() -> None:
    model = make()
    explained = model.explain(*batch())
    assert explained.forecast.shape == (2, 10, 3)
    assert [stage.name for stage in model.stages] == list(explained.attention)
    for stage in model.stages:
        found = explained.attention[stage.name]
        assert isinstance(found, Dense)
        assert found.weights.shape == (2, 2, stage.query.length, stage.key.length)
        torch.testing.assert_close(found.weights.sum(-1), torch.ones_like(found.weights[..., 0]))


def test_fused_and_explained_forecasts_agree() -> None:
    model, parts = make(), batch()
    torch.testing.assert_close(model(*parts), model.explain(*parts).forecast)


def test_batch_never_changes_a_forecast() -> None:
    model, parts = make(), batch(5)
    together = model(*parts)
    for i in range(5):
        alone = model(*(part[i : i + 1] for part in parts))
        torch.testing.assert_close(alone[0], together[i])


def test_a_step_of_the_horizon_does_not_see_later_ones() -> None:
    model, (history, past, future) = make(), batch()
    changed = future.clone()
    changed[:, 6] += 1
    before, after = model(history, past, future), model(history, past, changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


@pytest.mark.parametrize("kind", ["learned", "fixed"])
def test_integer_calendars(kind: str) -> None:
    calendar = Calendar.for_frequency(HOURLY, "integer")
    model = make(calendar=calendar, embedding=kind)
    integers = torch.ones(2, 24, 4), torch.ones(2, 10, 4)
    assert model(batch()[0], *integers).shape == (2, 10, 3)


@pytest.mark.parametrize("label", [0, 24])
def test_labels_of_nothing_and_of_all(label: int) -> None:
    assert make(label=label)(*batch()).shape == (2, 10, 3)


def test_positions_matter() -> None:
    model, parts = make(calendar=None), batch()
    assert not torch.allclose(model(parts[0]), model(parts[0].roll(1, dims=1)))
