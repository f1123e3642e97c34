"""Normalising each window, around whatever architecture."""

from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.models.architectures.transformer import Transformer
from foretell.models.forecaster import ARCHITECTURES, Forecaster, Inputs
from tests.checkpoints import SMALL, randomised

SIZES = {name: SMALL[name] for name in ("channels", "context", "horizon")}


def make(architecture: str, **fields: object) -> Forecaster:
    return randomised(ARCHITECTURES[architecture].model_validate({**SIZES, **fields}))


def history() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 48, 3)


@pytest.mark.parametrize("centre", ["mean", "last"])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_level_and_scale_of_a_window_go_through(
    architecture: str, affine: bool, centre: str
) -> None:
    model, windows = make(architecture, window_norm=centre, affine=affine), history()
    if affine:
        assert model.window_norm is not None
        torch.nn.init.uniform_(model.window_norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(model.window_norm.bias)
    found = model(windows * 7 + 100)
    torch.testing.assert_close(found, model(windows) * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(model.explain(windows).forecast, model(windows))


@pytest.mark.parametrize("name", ["standard", "robust", "invariant", "minmax1+last"])
def test_scalers_stand_around_a_model_as_well(name: str) -> None:
    model, windows = make("patchtst", window_norm=name), history()
    # Each adds a millionth to its spread.
    found = model(windows * 7 + 100)
    torch.testing.assert_close(found, model(windows) * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(model.explain(windows).forecast, model(windows))


@pytest.mark.parametrize("name", ["median", "robust+", "robust+last+mean"])
def test_what_is_no_norm_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected mean, last, standard, "):
        make("dlinear", window_norm=name)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_without_it_a_scale_changes_the_forecast(architecture: str) -> None:
    model, windows = make(architecture, window_norm=None), history()
    assert not torch.allclose(model(windows * 7), model(windows) * 7, atol=0.05)


def test_the_last_value_is_where_a_window_starts_from() -> None:
    """A network that says nothing forecasts what is subtracted."""
    windows = history()
    for centre, expected in (("last", windows[:, -1:]), ("mean", windows.mean(1, keepdim=True))):
        model = make("dlinear", window_norm=centre)
        for weight in model.parameters():
            torch.nn.init.zeros_(weight)
        torch.testing.assert_close(model(windows), expected.expand(-1, 12, -1))


@pytest.mark.parametrize("feeding", ["teacher", "scheduled", "free"])
def test_what_is_learned_from_is_normalised_with_the_window(feeding: str) -> None:
    """A decoder that reads the target reads it at the level of the window."""
    fields: dict[str, Any] = {"decoding": "autoregressive", "decoding_chunk": 4, "label": 12}
    model = make("transformer", window_norm="mean", feeding=feeding, d_model=8, **fields)
    assert isinstance(model, Transformer)
    windows, target = history(), torch.randn(2, 12, 3)
    found = []
    for scale, level in ((1, 0), (7, 100)):
        torch.manual_seed(0)
        inputs = Inputs(windows * scale + level)
        forecast, _ = model.forecast_to_learn(inputs, target * scale + level, 0.5)
        found.append((forecast - level) / scale)
    torch.testing.assert_close(*found, atol=1e-3, rtol=0)


def test_trained_parameters_need_something_to_scale() -> None:
    for name in (None, "robust"):
        with pytest.raises(ValueError, match="affine: needs window_norm mean or last"):
            make("dlinear", window_norm=name, affine=True)
    assert make("dlinear", window_norm="robust+mean", affine=True).window_norm is not None
