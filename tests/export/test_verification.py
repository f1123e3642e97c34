import copy
import weakref
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from foretell.bundle import layout
from foretell.export import verification
from foretell.export.adversarial import adversarial
from foretell.export.data_windows import synthetic
from foretell.export.errors import ExportError
from foretell.export.graphs import trace_all
from foretell.export.precision import reduce_precision
from foretell.export.reference import PlainModel
from foretell.export.rewrites import inference_form
from foretell.export.rules import RULES
from foretell.export.verification import verify
from foretell.export.window_set import WindowSet
from foretell.models import batches
from foretell.models.checkpoint import load
from tests.checkpoints import CONFIGS


@pytest.fixture
def loaded(checkpoints):
    return lambda name: load(checkpoints[name])


@pytest.fixture
def verified(bundles):
    """Compares the bundle of an architecture with a model."""

    def compare(name, loaded, *windows):
        return verify(loaded.model, loaded.info.scaler, bundles[name], *windows)

    return compare


def other_lags(model):
    """Make a model choose other lags."""
    with torch.no_grad():
        model.encoder_layers[0].attention.query.weight.neg_()
    return model


def failed(verification):
    return [check.name for check in verification.checks if not check.passed]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_check_passes_on_the_right_model(loaded, verified, name):
    own = loaded(name)
    found = verified(name, own, synthetic(own.info, 32, seed=1))
    checks = found.verification.checks
    assert found.verification.passed
    compared = {check.name.split(",")[1].strip() for check in checks}
    assert {"batch 1", "batch 3", "batch 64"} <= compared
    assert {stage.name for stage in own.model.stages} <= compared
    assert found.forecast.dtype == np.float64
    assert all(check.tolerance == RULES["float32"].forecast for check in checks)
    assert found.largest_error <= RULES["float32"].forecast


@pytest.mark.parametrize(("name", "limit"), [("patchtst", 100_000), ("autoformer", 200_000)])
def test_comparisons_run_in_batches_that_fit(loaded, verified, monkeypatch, name, limit):
    own, handed = loaded(name), []
    windows = synthetic(own.info, 12, seed=1)
    kinds = list(adversarial(windows.take(slice(4)), own.info.scaler, seed=1))
    whole = verified(name, own, windows, kinds)

    class Watched(PlainModel):
        def __call__(self, windows):
            # The maps of a batch are freed before the next batch runs.
            assert not any(reference() for reference in handed)
            made = super().__call__(windows)
            assert sum(output.nbytes for output in made.outputs.values()) <= limit
            handed.append(weakref.ref(made))
            return made

    monkeypatch.setattr(verification, "PlainModel", Watched)
    monkeypatch.setattr(batches, "LIMIT", limit)
    size = batches.windows_that_fit(own.model, explained=True)
    assert 1 <= size < 12
    found = verified(name, own, windows, kinds)
    assert len(handed) > 12 // size
    np.testing.assert_allclose(found.forecast, whole.forecast, rtol=1e-9)
    checks = {check.name: check for check in found.verification.checks}
    among = max(3, size)
    assert f"{layout.FORECAST_GRAPH}, batch 1 against {among}, synthetic windows" in checks
    assert f"{layout.FORECAST_GRAPH}, batch 64, synthetic windows" not in checks
    for check in whole.verification.checks:
        known = checks[check.name.replace("64", str(among))]
        assert (known.windows, known.excluded) == (check.windows, check.excluded)
        assert known.passed


@pytest.mark.parametrize("name", CONFIGS)
def test_graph_of_another_model_fails(loaded, verified, name):
    own = loaded(name)
    weight = next(w for n, w in own.model.named_parameters() if "feed_forward.expand" in n)
    with torch.no_grad():
        weight.mul_(1.001)
    assert not verified(name, own, synthetic(own.info, 16, seed=1)).verification.passed


def test_wrong_correlations_do_not_make_windows_ill_conditioned(loaded, verified):
    own = loaded("autoformer")
    other_lags(own.model)
    found = verified("autoformer", own, synthetic(own.info, 32, seed=1)).verification
    assert not found.passed
    assert max(check.excluded for check in found.checks) <= 3


def test_wrong_attention_fails(loaded, verified):
    """The explain graph of another model returns the same forecasts but other maps."""
    own = loaded("patchtst")

    class Sharpened(type(own.model)):
        def explain(self, *inputs):
            explained = super().explain(*inputs)
            maps = {
                name: attention._replace(weights=attention.weights**2)
                for name, attention in explained.attention.items()
            }
            return explained._replace(attention=maps)

    own.model.__class__ = Sharpened
    found = verified("patchtst", own, synthetic(own.info, 16, seed=1)).verification
    assert failed(found) == [
        f"{layout.EXPLAIN_GRAPH}, {stage.name}, synthetic windows" for stage in own.model.stages
    ]


def periodic(loaded, count):
    """Windows that repeat exactly every four steps: lags four apart tie."""
    windows = synthetic(loaded.info, count, seed=2)
    history = np.tile(windows.history[:, :4], (1, 12, 1))
    zeros = {name: np.zeros_like(part) for name, part in windows.inputs.items()}
    return WindowSet("periodic", zeros | {"history": history})


def mixed(loaded, good, ties):
    """Well-conditioned and ill-conditioned windows."""
    first, second = synthetic(loaded.info, good, seed=1).inputs, periodic(loaded, ties).inputs
    return WindowSet("mixed", {name: np.concatenate([first[name], second[name]]) for name in first})


def test_ill_conditioned_windows_are_left_out_and_counted(loaded, verified):
    own = loaded("autoformer")
    found = verified("autoformer", own, mixed(own, 8, 4))
    assert found.verification.passed
    assert all(check.excluded >= 4 for check in found.verification.checks)
    # The best-conditioned windows come first, ties last.
    ties = periodic(own, 4).history
    assert not any((found.windows.history[0] == tie).all() for tie in ties)


@pytest.mark.parametrize(("good", "ties"), [(1, 4), (8, 12)])
def test_more_than_half_ill_conditioned_windows_are_an_error(loaded, verified, good, ties):
    own = loaded("autoformer")
    with pytest.raises(ExportError, match=rf"of {good + ties} mixed .* ill-conditioned, more than"):
        verified("autoformer", own, mixed(own, good, ties))


def test_graph_of_choices_must_have_a_margin(loaded, verified, monkeypatch):
    own = loaded("autoformer")

    class Silent(verification.Graph):
        def __init__(self, path, **options):
            super().__init__(path, **options)
            self.outputs = [name if name != "margin" else "other" for name in self.outputs]

    monkeypatch.setattr(verification, "Graph", Silent)
    with pytest.raises(ExportError, match="the graph has no output `margin`"):
        verified("autoformer", own, synthetic(own.info, 8, seed=1))


@pytest.mark.parametrize("name", CONFIGS)
def test_adversarial_windows(loaded, verified, name):
    own = loaded(name)
    windows = synthetic(own.info, 8, seed=1)
    kinds = list(adversarial(windows, own.info.scaler, seed=1))
    verification = verified(name, own, windows, kinds).verification
    assert verification.passed
    found = {check.name: check for check in verification.checks}
    # With this offset all correlations are rounding errors.
    lost = ["offset 10000"] if name == "autoformer" else []
    for kind in kinds:
        check_name = f"{layout.FORECAST_GRAPH}, {kind.name} windows"
        check_name += ": not compared" if kind.name in lost else ""
        assert (found[check_name].windows == 0) == (kind.name in lost)
        chose = name == "autoformer" and kind.name not in lost
        assert (f"choices, {kind.name} windows" in found) == chose
    share = found["share of adversarial kinds that were not compared"]
    assert (share.max_error, share.tolerance) == (len(lost) / len(kinds), 0.75)


def trends(own):
    """Windows, and the adversarial windows of them with a trend."""
    windows = synthetic(own.info, 8, seed=1)
    kinds = adversarial(windows, own.info.scaler, seed=1)
    return windows, [kind for kind in kinds if kind.name == "trend"]


def test_other_lags_on_adversarial_windows_fail(loaded, verified):
    own = loaded("autoformer")
    other_lags(own.model)
    found = verified("autoformer", own, *trends(own)).verification
    assert "choices, trend windows" in failed(found)


@pytest.mark.parametrize(("ties", "passed"), [(3, True), (4, False)])
def test_a_quarter_of_the_adversarial_kinds_must_be_compared(loaded, verified, ties, passed):
    own = loaded("autoformer")
    windows, kinds = trends(own)
    kinds += [replace(periodic(own, 8), name=f"ties {number}") for number in range(ties)]
    found = verified("autoformer", own, windows, kinds).verification
    assert [check.name for check in found.checks if check.windows == 0] == [
        f"{layout.FORECAST_GRAPH}, ties {number} windows: not compared" for number in range(ties)
    ]
    share = ["share of adversarial kinds that were not compared"]
    assert failed(found) == ([] if passed else share)


def test_a_forecast_that_is_not_finite_is_an_error(loaded, verified):
    own = loaded("patchtst")
    windows = synthetic(own.info, 4, seed=1)
    windows.history[2] = np.nan
    with pytest.raises(ExportError, match=r"1 of 4 synthetic windows .* not finite"):
        verified("patchtst", own, windows)


@pytest.fixture(scope="module", params=["float16", "bfloat16"])
def reduced(request, bundles, checkpoints, tmp_path_factory):
    """A precision, and the graphs of an Autoformer in it."""
    folder = tmp_path_factory.mktemp(request.param)
    loaded = load(checkpoints["autoformer"])
    form = inference_form(loaded.model)
    reduce_precision(form, request.param)
    for file, graph in trace_all(form, loaded.info.scaler).items():
        onnx.save(graph, folder / file)
    return request.param, folder, loaded


def test_half_precision(reduced):
    precision, folder, (info, model) = reduced
    windows = synthetic(info, 64, seed=1)
    kinds = list(adversarial(windows.take(slice(8)), info.scaler, seed=1))
    verified = verify(model, info.scaler, folder, windows, kinds, precision)
    verification, rules = verified.verification, RULES[precision]
    assert verification.passed
    assert verification.emulates == precision
    checks = {check.name: check for check in verification.checks}
    share = checks["share with other choices, synthetic windows"]
    assert (share.windows, share.tolerance) == (64, rules.other_choices)
    batch = checks[f"{layout.FORECAST_GRAPH}, batch 64, synthetic windows"]
    # Windows with other lags are left out.
    assert batch.excluded == round(share.max_error * 64)
    assert RULES["float32"].forecast < verified.largest_error <= rules.forecast
    assert checks["explain.onnx, encoder.0.self, synthetic windows"].tolerance == rules.attention
    assert not any(name.startswith("choices") for name in checks)
    assert 1e-6 < verified.margin_bound < 0.1


def test_half_precision_fails_the_tolerance_of_float32(reduced):
    _, folder, (info, model) = reduced
    windows = synthetic(info, 16, seed=1)
    assert not verify(model, info.scaler, folder, windows).verification.passed


def test_another_model_fails_in_half_precision(reduced):
    precision, folder, (info, model) = reduced
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.projection.weight.mul_(1.1)
    windows = synthetic(info, 16, seed=1)
    assert not verify(changed, info.scaler, folder, windows, (), precision).verification.passed


def test_other_lags_fail_in_half_precision(reduced):
    precision, folder, (info, model) = reduced
    changed = other_lags(copy.deepcopy(model))
    windows = synthetic(info, 16, seed=1)
    found = verify(changed, info.scaler, folder, windows, (), precision).verification
    (share,) = [check for check in found.checks if check.name.startswith("share with")]
    assert share.max_error == 1
    assert not share.passed
