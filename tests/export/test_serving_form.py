import torch

from bundle.manifest import Scaler
from export.serving_form import ServingForm, lag_margin
from models.forecaster import LagAttention
from tests.export.conftest import CONFIGS, randomised

SCALER = Scaler(mean=(100.0, -5.0, 0.0), std=(10.0, 0.5, 2.0))


def test_users_units_in_and_out():
    model = randomised(CONFIGS["patchtst"])
    form = ServingForm(model, SCALER, "forecast")
    standardised = torch.randn(2, 48, 3)
    mean, std = torch.tensor(SCALER.mean), torch.tensor(SCALER.std)
    (found,) = form(standardised * std + mean)
    torch.testing.assert_close(found, model(standardised) * std + mean, rtol=1e-4, atol=1e-4)


def test_names_and_shapes():
    form = ServingForm(randomised(CONFIGS["autoformer"]), SCALER, "explain")
    assert form.input_names == ("history", "history_calendar", "future_calendar")
    example = form.example_inputs(2)
    assert [tuple(tensor.shape) for tensor in example] == [(2, 48, 3), (2, 48, 4), (2, 12, 4)]
    outputs = dict(zip(form.output_names, form(*example), strict=True))
    assert outputs["forecast"].shape == (2, 12, 3)
    assert outputs["encoder.1.self.correlation"].shape == (2, 48)
    assert outputs["decoder.0.cross.lags"].shape == outputs["decoder.0.cross.lag_weights"].shape
    assert outputs["margin"].shape == (2,)
    assert ServingForm(form.model, SCALER, "forecast").output_names == ("forecast", "margin")
    patchtst = ServingForm(randomised(CONFIGS["patchtst"]), SCALER, "forecast")
    assert patchtst.output_names == ("forecast",)


def test_margin_is_relative_to_the_largest_correlation():
    correlation = torch.tensor([[1.0, -8.0, 4.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    lags = torch.tensor([[2, 3], [0, 1]])
    seen = LagAttention(lags, torch.full((2, 2), 0.5), correlation)
    assert lag_margin(seen).tolist() == [0.25, 0.0]
    everything = seen._replace(lags=torch.arange(4).expand(2, 4))
    assert lag_margin(everything).tolist() == [1.0, 1.0]
