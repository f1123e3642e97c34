import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.huggingface_patchtst import (
    HuggingFacePatchTST,
    HuggingFacePatchTSTConfig,
)
from foretell.models.attention.evidence import Dense
from tests.checkpoints import randomised

SIZES = {
    "channels": 3,
    "context": 27,
    "horizon": 5,
    "patch": 6,
    "stride": 4,
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "encoder_layers": 2,
}


def make(**changes: object) -> HuggingFacePatchTST:
    model = randomised(HuggingFacePatchTSTConfig.model_validate(SIZES | changes))
    assert isinstance(model, HuggingFacePatchTST)
    return model


@pytest.mark.parametrize("classed", [False, True])
def test_stages_say_where_the_patches_are(classed: bool) -> None:
    model = make(class_token=classed, channel_attention=True)
    seen = model.explain(torch.randn(2, 27, 3)).attention
    assert list(seen) == [stage.name for stage in model.stages]
    assert list(seen) == [f"encoder.{i}.{kind}" for i in (0, 1) for kind in ("self", "channels")]
    own, between = model.stages[:2]
    # Of 27 steps six patches take the last 26: -26 to -20, …, -6 to 0.
    assert (own.key.start, own.key.stride, own.key.width) == (-26, 4, 6)
    assert (own.key.length, own.key.padding) == (6 + classed, int(classed))
    assert own.per_channel
    assert (between.key.of, between.key.length, between.per_channel) == ("channels", 3, False)
    for stage, shape in ((own, (2, 3, 2, 6 + classed, 6 + classed)), (between, (2, 2, 3, 3))):
        found = seen[stage.name]
        assert isinstance(found, Dense)
        assert found.weights.shape == shape
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(shape[:-1]))


def test_the_first_steps_are_not_read_and_the_last_ones_are() -> None:
    model, history = make(window_norm=None), torch.randn(1, 27, 3)
    before = model(history)
    history[:, 0] += 5
    torch.testing.assert_close(model(history), before)
    for step in (1, 26):
        changed = history.clone()
        changed[:, step] += 5
        assert not torch.allclose(model(changed), before)


@pytest.mark.parametrize(
    ("norm", "steps"), [("mean", 27), ("magnitude", 27), (None, 27), ("robust", None)]
)
def test_gaps_are_read_as_far_as_a_norm_knows_them(norm: str | None, steps: int | None) -> None:
    model, history = make(window_norm=norm), torch.randn(2, 27, 3)
    history[0, 3:5, 1] = torch.nan
    assert model.config.observed_steps == steps
    assert model(history).isfinite().all() == (steps is not None)


@pytest.mark.parametrize("crossed", [False, True])
def test_channels_read_each_other_where_they_attend(crossed: bool) -> None:
    model, history = make(channel_attention=crossed), torch.randn(1, 27, 3)
    before = model(history)
    history[:, 5:9, 1] += 5
    moved = (model(history) - before).abs().amax(dim=(0, 1)) > 1e-6
    assert moved.tolist() == [crossed, True, crossed]


def test_the_head_reads_what_the_config_says() -> None:
    assert make().heads[0].in_features == 6 * 8
    assert make(pooling="mean").heads[0].in_features == 8
    assert make(class_token=True).heads[0].in_features == 8
    assert len(make(own_embedding=True).embeddings) == 3


def test_norms_have_their_epsilon() -> None:
    for norm in ("layer", "batch"):
        layer = make(norm=norm, norm_epsilon=0.01).layers[0].attention_norm
        assert getattr(layer, "norm", layer).eps == 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 28}, "patch: 28 steps are more than the context 27"),
        ({"class_token": True, "pooling": "max"}, "pooling: the head reads the class token alone"),
        ({"channel_attention": True, "attention": "linear"}, "channel_attention: of softmax alone"),
        ({"calendar": {"encoding": "scaled", "features": ["hour"]}}, "reads no calendar features"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**changes)
