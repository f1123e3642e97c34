import copy

import pytest
import torch
from torch import nn

from bundle.calendar import Calendar
from bundle.frequency import Frequency
from export.rewrites import inference_form
from models.autoformer import AutoformerConfig
from models.forecaster import ForecasterConfig
from models.layers.normalization import TokenBatchNorm
from models.patchtst import PatchTSTConfig
from models.transformer import TransformerConfig
from tests.export.conftest import HOURLY, SMALL, randomised

INTEGERS = Calendar.for_frequency(Frequency.parse("h"), "integer")
OFFICIAL = {
    "patch_bias": True,
    "positions": "learned",
    "norm": "batch",
    "final_norm": None,
    "residual_attention": True,
    "affine": True,
}
CONFIGS = [
    AutoformerConfig(**SMALL, label=24, calendar=HOURLY, moving_average=13),
    AutoformerConfig(**SMALL | {"context": 37}, label=16, lags="even", decoder_layers=2),
    AutoformerConfig(**SMALL | {"horizon": 40}, label=24, embedding="learned", calendar=INTEGERS),
    TransformerConfig(**SMALL, label=24, calendar=HOURLY),
    TransformerConfig(**SMALL, label=0, decoder_layers=2, activation="relu"),
    PatchTSTConfig(**SMALL),
    PatchTSTConfig(**SMALL, final_norm="layer", patch=10, stride=3, pad_end=False),
    PatchTSTConfig(**SMALL, **OFFICIAL, individual=True),
    PatchTSTConfig(**SMALL, **OFFICIAL | {"affine": False}, decomposition=9, instance_norm="last"),
]


def inputs(config: ForecasterConfig, batch: int = 5):
    torch.manual_seed(batch)
    history = torch.randn(batch, config.context, config.channels, dtype=torch.float64)
    if config.calendar is None:
        return (history,)
    shapes = (config.context, config.horizon)
    features = len(config.calendar.features)
    if config.calendar.encoding == "integer":
        return history, *(torch.randint(0, 4, (batch, n, features)).double() for n in shapes)
    return history, *(torch.rand(batch, n, features, dtype=torch.float64) - 0.5 for n in shapes)


@pytest.fixture
def float64():
    """Makes models, and the constants of their rewrites, in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.architecture)
def test_the_form_equals_the_model(config, float64):
    model = randomised(config)
    form = inference_form(model)
    given = inputs(config)
    with torch.inference_mode():
        expected, found = model.explain(*given), form.explain(*given)
        torch.testing.assert_close(form(*given), expected.forecast, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.forecast, expected.forecast, rtol=1e-11, atol=1e-11)
    assert list(found.attention) == [stage.name for stage in model.stages]
    for name, attention in expected.attention.items():
        for part, wanted in attention._asdict().items():
            if wanted is not None:
                torch.testing.assert_close(
                    getattr(found.attention[name], part), wanted, rtol=1e-11, atol=1e-11
                )


@pytest.mark.parametrize("config", CONFIGS[::3], ids=lambda config: config.architecture)
def test_the_model_is_not_touched(config):
    model = randomised(config)
    before = copy.deepcopy(model.state_dict())
    modules = [type(module) for module in model.modules()]
    inference_form(model)
    assert [type(module) for module in model.modules()] == modules
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.architecture)
def test_nothing_is_left_that_needs_cudnn(config):
    form = inference_form(randomised(config))
    left = [m for m in form.modules() if isinstance(m, nn.Conv1d | nn.BatchNorm1d | TokenBatchNorm)]
    assert left == []
