"""Outputs equal those of the published code, within the tolerances stored with each case."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from foretell.importers.published import CODE_BASES
from foretell.importers.reading import read_state
from foretell.models.architectures.autoformer import Autoformer, AutoformerConfig
from foretell.models.attention.auto_correlation import AutoCorrelationConfig
from foretell.models.attention.evidence import Circulant, Dense
from tests import golden

KINDS = (
    "constant",
    "zero",
    "sine24",
    "linear_trend",
    "large_offset",
    "tiny_amplitude",
    "mixed_channels",
    "moderate_offset",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", golden.FORECASTERS)
def test_forecast_of_edge_input(name: str, kind: str) -> None:
    case = golden.case(name)
    arrays = case.arrays("io_edge")
    row = list(arrays["kind"]).index(kind)
    forecast = case.explain("io_edge").forecast[row].numpy()
    expected, tolerance = arrays["out"][row], case.tolerance["edge"][kind]
    if tolerance["comparable"]:
        np.testing.assert_allclose(forecast, expected, rtol=0, atol=tolerance["recommended_atol"])
    else:
        # Rounding alone changes the chosen lags: values near the offset are all that can be
        # required.
        assert np.isfinite(forecast).all()
        mean = arrays["x_enc"][row].mean(axis=0)
        np.testing.assert_allclose(forecast, np.broadcast_to(mean, forecast.shape), atol=20)


@pytest.mark.parametrize("name", golden.SOFTMAX)
def test_attention(name: str) -> None:
    case = golden.case(name)
    arrays = case.arrays("io")
    attention = case.explain("io").attention
    stages = {key.removeprefix("attn_"): value for key, value in arrays.items() if "attn" in key}
    assert {golden.stage(stage) for stage in stages} == set(attention)
    for stage, expected in stages.items():
        found = attention[golden.stage(stage)]
        assert isinstance(found, Dense)
        # The first sample of PatchTST is stored: [channels, heads, patches, patches].
        weights = found.weights[0] if found.weights.ndim == 5 else found.weights
        atol = case.tolerance["attention"][f"attn_{stage}"]["recommended_atol"]
        np.testing.assert_allclose(weights, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", golden.AUTOFORMERS)
def test_lags(name: str) -> None:
    case = golden.case(name)
    arrays, debug = case.arrays("io"), case.arrays("debug")
    attention = case.explain("io").attention
    stages = [key.removeprefix("attn_") for key in arrays if key.startswith("attn_")]
    assert {golden.stage(stage) for stage in stages} == set(attention)
    for stage in stages:
        found = attention[golden.stage(stage)]
        assert isinstance(found, Circulant)
        atol = case.tolerance["attention"][f"attn_{stage}"]["recommended_atol"]
        correlation = arrays[f"attn_{stage}"].mean(axis=(2, 3), dtype=np.float64)
        np.testing.assert_allclose(found.correlation, correlation, rtol=0, atol=atol)
        np.testing.assert_array_equal(found.lags, debug[f"topk_lag_{stage}"])
        np.testing.assert_allclose(
            found.lag_weights, debug[f"topk_weight_{stage}"], rtol=0, atol=atol
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", golden.AUTOFORMERS)
def test_lags_of_edge_input(name: str, kind: str) -> None:
    case = golden.case(name)
    arrays, tolerance = case.arrays("io_edge"), case.tolerance["edge"][kind]
    row = list(arrays["kind"]).index(kind)
    attention = case.explain("io_edge").attention
    stages = [key.removeprefix("topk_lag_") for key in arrays if key.startswith("topk_lag_")]
    assert len(stages) == len(attention)
    for stage in stages:
        found = attention[golden.stage(stage)]
        assert isinstance(found, Circulant)
        lags = found.lags[row].numpy()
        assert len(set(lags)) == len(lags)
        assert found.lag_weights[row].sum() == pytest.approx(1, abs=1e-5)
        if tolerance["comparable"] and stage not in tolerance["near_tie_layers"]:
            assert set(lags) == set(arrays[f"topk_lag_{stage}"][row])


def test_odd_length_with_and_without_its_last_lag() -> None:
    """Two code bases with equal weights: one of them leaves out the last lag."""
    ours, theirs = golden.case("autoformer_official_odd"), golden.case("tslib_autoformer_odd")
    models = ours.model, theirs.model
    for name, weight in models[0].state_dict().items():
        assert torch.equal(weight, models[1].state_dict()[name])
    correlations = [each.explain("io").attention["encoder.0.self"] for each in (ours, theirs)]
    assert [found.correlation.shape[1] for found in correlations] == [97, 96]


def test_training_with_one_choice_of_lags_for_the_batch() -> None:
    case = golden.case("tslib_autoformer_timef")
    published, arrays = case.model, case.arrays("io_train")
    config = published.config
    assert isinstance(config, AutoformerConfig)
    (mechanism,) = config.attention
    assert isinstance(mechanism, AutoCorrelationConfig)
    assert mechanism.training_lags == "batch"
    model = Autoformer(config.model_copy(update={"dropout": 0.0}))
    model.load_state_dict(published.state_dict())
    model.train()
    explained = model.explain(*case.inputs("io"))
    tolerance = case.tolerance["train"]
    np.testing.assert_allclose(
        explained.forecast.detach(),
        arrays["out_train"],
        rtol=0,
        atol=tolerance["recommended_atol_out"],
    )
    for key in (key for key in arrays if key.startswith("topk_lag_")):
        found = explained.attention[golden.stage(key.removeprefix("topk_lag_"))]
        assert isinstance(found, Circulant)
        for lags in found.lags:
            assert set(lags.tolist()) == set(arrays[key].tolist())

    loss = functional.mse_loss(explained.forecast, torch.from_numpy(arrays["y_true"]))
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays["loss"]), abs=1e-5)
    architecture = CODE_BASES["tslib"].architectures["autoformer"]
    keys = architecture.keys(read_state(case.checkpoint))
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        expected = arrays[f"grad/{keys.original(name)}"].reshape(weight.shape)
        np.testing.assert_allclose(
            weight.grad, expected, rtol=0, atol=tolerance["recommended_atol_grad"]
        )
