from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foretell.bundle.covariates import Covariate, Covariates
from foretell.models.architectures.tide import ResidualBlock, TideConfig
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from tests.checkpoints import HOURLY, randomised

KINDS = Covariate(name="region", type="category", categories=("north", "south", "west"))
COVARIATES = Covariates(
    future=(Covariate(name="price", mean=2.0, std=3.0), Covariate(name="open", type="boolean")),
    past=(Covariate(name="visits"),),
    static=(KINDS, Covariate(name="size")),
)
SIZES: dict[str, Any] = {"channels": 4, "context": 9, "horizon": 5, "d_model": 7, "dropout": 0}
SIZES |= {"projection": 3, "step_features": 2, "step_width": 6}
# The channels 1 and 3 are forecast.
WHOLE = {"targets": (1, 3), "covariates": COVARIATES, "calendar": HOURLY}


def make(**changes: object) -> Forecaster:
    return randomised(TideConfig.model_validate(SIZES | WHOLE | changes)).double()


def inputs(model: Forecaster, count: int = 3) -> Inputs:
    torch.manual_seed(1)
    found = model.example_inputs(count, torch.float64)
    known = found._replace(
        **{
            name: torch.randn_like(part)
            for name, part in found._asdict().items()
            if part is not None
        }
    )
    return known._replace(static_covariates=torch.tensor([[1.0, 0.3]] * count).double())


def block(part: Any, features: Tensor) -> Tensor:
    """Equation 1 of the paper: ReLU, a linear map, the skip connection, and a layer norm."""
    hidden = (features @ part.hidden.weight.T + part.hidden.bias).clamp(min=0)
    found = hidden @ part.output.weight.T + part.output.bias
    found = found + features @ part.skip.weight.T + part.skip.bias
    if part.norm is None:
        return found
    centred = found - found.mean(-1, keepdim=True)
    scaled = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + part.norm.eps)
    return scaled * part.norm.weight + part.norm.bias


@pytest.mark.parametrize("layer_norm", [False, True])
def test_forecast_is_that_of_the_formulae(layer_norm: bool) -> None:
    model: Any = make(layer_norm=layer_norm)
    given = inputs(model)
    past = given.history[..., [0, 2]]
    scale = torch.tensor([3.0, 1.0]).double()
    times = [
        torch.cat([calendar, (codes - torch.tensor([2.0, 0.0])) / scale], dim=2)
        for calendar, codes in (
            (given.history_calendar, given.history_covariates),
            (given.future_calendar, given.future_covariates),
        )
    ]
    ahead = block(model.future_projection, torch.cat(times, dim=1))
    behind = block(model.past_projection, past)
    static = torch.tensor([[0, 1, 0, 0.3]]).double()
    for place, channel in enumerate((1, 3)):
        for window in range(3):
            series = given.history[window, :, channel]
            parts = [series, behind[window].flatten(), ahead[window].flatten(), static[0]]
            encoded = torch.cat(parts)
            for part in [*model.encoder, *model.decoder]:
                encoded = block(part, encoded)
            steps = torch.cat([encoded.reshape(5, 2), ahead[window, 9:]], dim=1)
            expected = block(model.temporal_decoder, steps)[:, 0] + model.skip(series)
            found = model(*given)[window, :, place]
            torch.testing.assert_close(found, expected)


def test_each_input_matters_for_the_channels_that_read_it() -> None:
    model = make()
    given = inputs(model)
    before = model(*given)
    assert before.shape == (3, 5, 2)
    for name, part in given._asdict().items():
        changed = model(*given._replace(**{name: part + 1})) - before
        assert (changed.abs().amax(dim=(0, 1)) > 0).all(), name
    for channel, moved in ((0, [True, True]), (1, [True, False]), (3, [False, True])):
        history = given.history.clone()
        history[..., channel] += 1
        changed = model(*given._replace(history=history)) - before
        assert (changed.abs().amax(dim=(0, 1)) > 0).tolist() == moved


def test_outputs_of_a_head_are_parameters_of_the_step() -> None:
    model: Any = make(head="quantiles", levels=(0.1, 0.5, 0.9), window_norm="mean")
    found = model.predict(inputs(model))
    assert found.distribution is not None
    assert found.distribution.shape == (3, 5, 2, 3)
    assert torch.equal(found.forecast, found.distribution[..., 1])
    assert model.temporal_decoder.output.out_features == 3
    # The fourth step of the second level of the skip connection.
    with torch.no_grad():
        model.skip.bias[5 + 3] += 1
    moved = (model.predict(inputs(model)).distribution - found.distribution).abs() > 0
    assert moved[:, 3, :, 1].all()
    assert moved.sum() == moved[:, 3, :, 1].sum()


def test_norm_of_the_temporal_decoder_leaves_a_constant() -> None:
    model: Any = make(step_norm=True, covariates=None, calendar=None, targets=None)
    given = inputs(model)._replace(static_covariates=None)
    expected = model.skip(given.history.mT).mT + model.temporal_decoder.norm.bias
    torch.testing.assert_close(model(*given), expected)


def test_block_without_a_norm_and_a_width_of_its_own() -> None:
    config = TideConfig.model_validate(SIZES | {"layer_norm": False})
    found = config.block(4, 2, width=11)
    assert isinstance(found, ResidualBlock)
    assert (found.norm, found.hidden.out_features) == (None, 11)
    features = torch.randn(3, 4)
    expected = found.output(functional.relu(found.hidden(features))) + found.skip(features)
    torch.testing.assert_close(found(features), expected)
