import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.patchtst import PatchTST, PatchTSTConfig
from foretell.models.attention.mechanism import Attended

SIZES = {
    "channels": 3,
    "context": 24,
    "horizon": 10,
    "d_model": 8,
    "heads": 2,
    "d_ff": 16,
    "encoder_layers": 2,
    "patch": 6,
    "stride": 3,
}


def make(**changes: object) -> PatchTST:
    torch.manual_seed(0)
    return PatchTST(PatchTSTConfig.model_validate(SIZES | changes)).eval()


def history(batch: int = 2, channels: int = 3) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(batch, 24, channels)


def test_channels_do_not_mix() -> None:
    model, windows = make(), history()
    changed = windows.clone()
    changed[..., 1] += torch.randn(2, 24)
    before, after = model(windows), model(changed)
    torch.testing.assert_close(before[..., [0, 2]], after[..., [0, 2]])
    assert not torch.allclose(before[..., 1], after[..., 1])


def test_a_shared_head_reads_any_number_of_channels() -> None:
    model, windows = make(), history(channels=5)
    forecast = model(windows)
    assert forecast.shape == (2, 10, 5)
    torch.testing.assert_close(forecast[..., :3], model(windows[..., :3]))


def test_individual_heads_differ() -> None:
    model = make(individual=True)
    same = history()[..., :1].expand(-1, -1, 3)
    forecast = model(same)
    assert not torch.allclose(forecast[..., 0], forecast[..., 1])


@pytest.mark.parametrize(
    ("context", "patch", "stride", "pad_end", "patches"),
    [(24, 6, 3, True, 8), (24, 6, 3, False, 7), (336, 16, 8, True, 42), (25, 6, 4, True, 6)],
)
def test_patches_cover_the_context(
    context: int, patch: int, stride: int, pad_end: bool, patches: int
) -> None:
    model = make(context=context, patch=patch, stride=stride, pad_end=pad_end)
    axis = model.stages[0].query
    assert axis.length == model.config.patches == patches
    assert (axis.start, axis.stride, axis.width) == (-context, stride, patch)
    tokens = model.branches[0]._patches(torch.arange(context).float()[None, :, None])
    assert tokens.shape == (1, 1, patches, patch)
    # Position i covers the steps from start + i * stride on; past the end the last one repeats.
    expected = torch.arange(patch) + stride * torch.arange(patches)[:, None]
    assert torch.equal(tokens[0, 0], expected.clamp(max=context - 1).float())


def test_decomposition_adds_two_networks() -> None:
    model, windows = make(decomposition=5), history()
    assert model.decomposition is not None
    rest, trend = model.decomposition(windows)
    expected = model.branches[0](rest)[0] + model.branches[1](trend)[0]
    torch.testing.assert_close(model(windows), expected)


@pytest.mark.parametrize(
    ("given", "attention", "head"),
    [
        ({}, 0.3, 0.3),
        ({"attention_dropout": 0.0}, 0.0, 0.3),
        ({"head_dropout": 0.0}, 0.3, 0.0),
        ({"attention_dropout": 0.1, "head_dropout": 0.2}, 0.1, 0.2),
    ],
)
def test_other_dropouts_default_to_dropout(
    given: dict[str, float], attention: float, head: float
) -> None:
    model = make(dropout=0.3, **given)
    (network,) = model.branches
    assert [layer.attention.dropout for layer in network.layers] == [attention] * 2
    assert (network.dropout.p, network.head_dropout.p) == (0.3, head)
    # A checkpoint has all three rates.
    again = PatchTSTConfig.model_validate(model.config.model_dump() | {"dropout": 0.5})
    assert (again.attention_dropout, again.head_dropout) == (attention, head)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 99}, "patch: 99 steps are more than the context 24 and a stride"),
        ({"patch": 25, "pad_end": False}, "patch: 25 steps are more than the context 24 "),
        ({"heads": 3}, "heads: 3 heads do not divide"),
        (
            {"joint_channels": True, "channels": 3000},
            "joint_channels: 3000 channels of . patches are more than 8192 tokens",
        ),
        ({"decomposition": 4}, "decomposition: expected an odd number"),
        ({"affine": True, "window_norm": None}, "affine: needs window_norm"),
        ({"calendar": {"encoding": "scaled", "features": ["hour"]}}, "calendar: PatchTST reads no"),
    ],
)
def test_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**changes)


def test_channels_that_attend_to_each_other() -> None:
    model, windows = make(joint_channels=True), history()
    changed = windows.clone()
    changed[..., 0] = changed[..., 0].roll(1, dims=1)
    # Without it only the channel itself would change.
    assert not torch.isclose(model(windows)[..., 1], model(changed)[..., 1]).any()
    (stage, *_), patches = model.stages, model.config.patches
    channels = windows.shape[2]
    weights = model.explain(windows).attention[stage.name].weights
    assert (stage.per_channel, stage.key.of) == (False, "landmarks")
    assert weights.shape == (len(windows), 2, channels * patches, channels * patches)


def test_joint_tokens_are_channel_by_channel() -> None:
    """If attention returns its input, joint tokens give the forecasts of single channels."""
    alone, joint, windows = make(), make(joint_channels=True), history()
    joint.load_state_dict(alone.state_dict())
    for model in (alone, joint):
        for layer in model.branches[0].layers:
            layer.attention.forward = lambda tokens, *_, **__: Attended(0.5 * tokens)
    torch.testing.assert_close(joint(windows), alone(windows))
