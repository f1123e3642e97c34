import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

HOURLY = Frequency.parse("h")
SIZES = {
    "channels": 2,
    "context": 12,
    "horizon": 6,
    "label": 4,
    "d_model": 8,
    "heads": 2,
    "d_ff": 16,
    "encoder_layers": 2,
}


def make(**changes: object) -> EncoderDecoderConfig:
    return TransformerConfig.model_validate(SIZES | changes)


@pytest.mark.parametrize("label", [0, 4])
def test_decoder_calendar_is_the_label_and_the_horizon(label: int) -> None:
    config = make(label=label, calendar=Calendar.for_frequency(HOURLY, "scaled"))
    history, future = torch.randn(3, 12, 4), torch.randn(3, 6, 4)
    calendar = config.decoder_calendar(history, future)
    assert calendar is not None
    assert torch.equal(calendar, torch.cat([history[:, 12 - label :], future], dim=1))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"heads": 3}, "heads"),
        ({"label": 13}, "label"),
        ({"calendar": Calendar.for_frequency(HOURLY, "integer")}, "calendar"),
        (
            {"calendar": Calendar.for_frequency(HOURLY, "scaled"), "embedding": "fixed"},
            "calendar",
        ),
        ({"channels": 0}, "channels"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_refuses(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        make(**changes)


def test_axes_of_softmax_stages() -> None:
    stages = {stage.name: stage for stage in make().describe_stages()}
    assert list(stages) == [
        "encoder.0.self",
        "encoder.1.self",
        "decoder.0.self",
        "decoder.0.cross",
    ]
    cross = stages["decoder.0.cross"]
    assert (cross.query.length, cross.query.start) == (10, -4)
    assert (cross.key.length, cross.key.start, cross.key.padding) == (12, -12, 0)
    own = stages["decoder.0.self"]
    assert (own.query, own.key) == (cross.query, cross.query)
    assert [stage.mechanism for stage in stages.values()] == ["softmax"] * 4


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            ["softmax"] * 2,
            "expected one mechanism for all or 3, one a layer, or 4: encoder.0.self, ",
        ),
        ("autocorrelation", "autocorrelation has no causal form"),
        ("residual-softmax", "residual-softmax is for whole layers of an encoder"),
        ("oracle", "expected one of .*, softmax, .*, got 'oracle'"),
        ([], "attention"),
        ({"mechanism": "softmax", "factor": 2}, "factor"),
    ],
)
def test_invalid_mechanisms_are_refused(attention: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(attention=attention)
