import torch

from foretell.bundle.scaler import Scaler
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.huggingface_autoformer import HuggingFaceAutoformerConfig
from tests.checkpoints import CONFIGS, SMALL, randomised

SCALER = Scaler(mean=(100.0, -5.0, 0.0), std=(10.0, 0.5, 2.0))


def test_inputs_and_outputs_are_in_the_units_of_the_data():
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
    assert outputs["encoder.0.self.correlation"].shape == (2, 48)
    assert outputs["decoder.0.cross.lags"].shape == outputs["decoder.0.cross.lag_weights"].shape
    assert ServingForm(form.model, SCALER, "forecast").output_names == ("forecast", "margin")


def test_only_a_form_with_choices_has_a_margin(float64):
    model = randomised(CONFIGS["autoformer"])
    form = ServingForm(inference_form(model), SCALER, "forecast")
    assert form.output_names == ("forecast", "margin")
    example = [torch.randn(part.shape) for part in form.example_inputs(5)]
    forecast, margin = form(*example)
    assert forecast.shape == (5, 12, 3)
    assert margin.shape == (5,)
    # The plain model has a margin as well.
    torch.testing.assert_close(margin, ServingForm(model, SCALER, "forecast")(*example)[1])
    patchtst = ServingForm(inference_form(randomised(CONFIGS["patchtst"])), SCALER, "forecast")
    assert patchtst.output_names == ("forecast",)


def test_form_that_keeps_all_lags_has_margin_one():
    config = AutoformerConfig(**SMALL | {"context": 2, "horizon": 1}, label=1)
    form = ServingForm(inference_form(randomised(config)), SCALER, "forecast")
    assert form(*form.example_inputs(3))[1].tolist() == [1, 1, 1]


def test_margin_with_missing_values_is_one():
    sizes = {name: SMALL[name] for name in ("channels", "d_model", "heads", "encoder_layers")}
    lags = {"context": 3, "horizon": 1, "value_lags": (1,), "label": 1, "head": "student-t"}
    model = randomised(HuggingFaceAutoformerConfig(**sizes, **lags))
    history = torch.randn(2, 3, 3)
    history[0, 0] = torch.nan
    assert ServingForm(model, SCALER, "forecast")(history)[-1].tolist() == [1, 1]


def test_the_margin_is_the_smallest_of_all_stages():
    form = ServingForm(inference_form(randomised(CONFIGS["autoformer"])), SCALER, "explain")
    inputs = [torch.randn(part.shape) for part in form.example_inputs(20)]
    outputs = dict(zip(form.output_names, form(*inputs), strict=True))
    margins = []
    for stage in form.model.stages:
        ranked = outputs[f"{stage.name}.correlation"].sort(dim=1, descending=True).values
        keep = outputs[f"{stage.name}.lags"].shape[1]
        margins.append((ranked[:, keep - 1] - ranked[:, keep]) / (ranked[:, 0] - ranked[:, -1]))
    expected = torch.stack(margins).amin(dim=0)
    torch.testing.assert_close(outputs["margin"], expected, rtol=1e-2, atol=1e-6)
