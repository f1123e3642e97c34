import numpy as np
import pytest
import torch

from foretell.export.data_windows import synthetic
from foretell.export.reference import PlainModel
from foretell.models.checkpoint import load
from tests.checkpoints import CONFIGS


def test_is_the_plain_model_in_float64(checkpoints):
    info, model = load(checkpoints["autoformer"])
    windows = synthetic(info, 70, seed=3)
    found = PlainModel(model, info.scaler)(windows)
    # float32 as the graph has it, then widened.
    mean, std = (
        np.float32(part).astype(np.float64) for part in (info.scaler.mean, info.scaler.std)
    )
    history, past, future = (part.astype(np.float64) for part in windows.inputs)
    standardised = torch.from_numpy((history - mean) / std)
    with torch.inference_mode():
        expected = (
            load(checkpoints["autoformer"])
            .model.double()
            .explain(standardised, torch.from_numpy(past), torch.from_numpy(future))
        )
    np.testing.assert_allclose(found.forecast, expected.forecast.numpy() * std + mean, rtol=1e-12)
    for stage in model.stages:
        parts = expected.attention[stage.name][: len(stage.outputs)]
        for name, part in zip(stage.output_names, parts, strict=True):
            np.testing.assert_allclose(found.outputs[name], part, rtol=1e-9, atol=1e-12)


def test_leaves_the_model_in_float32(checkpoints):
    info, model = load(checkpoints["patchtst"])
    PlainModel(model, info.scaler)(synthetic(info, 2, seed=0))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_shows_nothing_forecasts_the_same_and_keeps_choices(checkpoints, name):
    info, model = load(checkpoints[name])
    windows = synthetic(info, 3, seed=0)
    whole = PlainModel(model, info.scaler)(windows).without_maps(model.stages)
    found = PlainModel(model, info.scaler, shows=False)(windows).without_maps(model.stages)
    assert found.outputs.keys() == whole.outputs.keys()
    for output, each in whole.outputs.items():
        np.testing.assert_allclose(found.outputs[output], each, rtol=1e-9, atol=1e-9)


def test_what_shows_nothing_makes_no_maps(checkpoints):
    info, model = load(checkpoints["patchtst"])
    found = PlainModel(model, info.scaler, shows=False)(synthetic(info, 3, seed=0))
    assert list(found.outputs) == ["forecast"]
