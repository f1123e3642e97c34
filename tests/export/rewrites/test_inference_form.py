import copy

import pytest
import torch
from torch import nn

from foretell.export.rewrites import inference_form
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.config import ForecasterConfig
from foretell.models.inputs import Inputs
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.window_norms import InstanceNorm
from tests.checkpoints import SMALL, randomised
from tests.support.variants import VARIANTS, Size

# The exported models, and one whose decoder gets no input.
SIZES = [
    *VARIANTS,
    Size("Autoformer, no label", AutoformerConfig(**SMALL | {"horizon": 24}, label=0)),
]
CONFIGS = [size.config for size in SIZES]
NAMES = [size.name for size in SIZES]


def inputs(config: ForecasterConfig, batch: int = 5) -> Inputs:
    return Inputs(
        *(None if part is None else part.double() for part in Size("", config).inputs(batch))
    )


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_the_form_equals_the_model(config, float64):
    model = randomised(config)
    form = inference_form(model)
    given = inputs(config)
    with torch.inference_mode():
        expected, found = model.explain(*given), form.explain(*given)
        torch.testing.assert_close(form(*given), expected.forecast, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.forecast, expected.forecast, rtol=1e-11, atol=1e-11)
    assert (expected.distribution is None) == (config.build_head() is None)
    torch.testing.assert_close(
        found.trained_output, expected.trained_output, rtol=1e-11, atol=1e-11
    )
    shown = [stage.name for stage in model.stages if stage.form != "none"]
    assert list(found.attention) == shown
    for name, attention in expected.attention.items():
        for part, wanted in attention._asdict().items():
            if wanted is not None:
                torch.testing.assert_close(
                    getattr(found.attention[name], part), wanted, rtol=1e-11, atol=1e-11
                )


@pytest.mark.parametrize("config", CONFIGS[::5], ids=NAMES[::5])
def test_model_is_unchanged(config):
    model = randomised(config)
    before = copy.deepcopy(model.state_dict())
    modules = [type(module) for module in model.modules()]
    inference_form(model)
    assert [type(module) for module in model.modules()] == modules
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_no_module_is_left_that_needs_cudnn(config):
    form = inference_form(randomised(config))
    left = [m for m in form.modules() if isinstance(m, nn.Conv1d | nn.BatchNorm1d | TokenBatchNorm)]
    assert left == []
    # Means over time that leave out gaps are not rewritten as sums.
    norms = [module for module in form.modules() if type(module) is InstanceNorm]
    assert all(norm.reads_gaps for norm in norms)
