import copy
import weakref
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from foretell.bundle import layout
from foretell.bundle.measure import relative_error
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


def torch_forecast(loaded, windows):
    mean, std = (torch.tensor(part) for part in (loaded.info.scaler.mean, loaded.info.scaler.std))
    history, *calendars = (None if p is None else torch.from_numpy(p) for p in windows.inputs)
    with torch.inference_mode():
        return (loaded.model((history - mean) / std, *calendars) * std + mean).numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_graphs_equal_torch_float32_alone_and_in_batches(bundles, checkpoints, name):
    loaded = load(checkpoints[name])
    windows = synthetic(loaded.info, 64, seed=5)
    session = onnxruntime.InferenceSession(
        str(bundles[name] / layout.FORECAST_GRAPH), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    expected = torch_forecast(loaded, windows)
    scale = np.array(loaded.info.scaler.std)
    forecasts = {}
    for batch in (1, 3, 64):
        forecasts[batch] = np.concatenate(
            [
                session.run(["forecast"], dict(zip(names, part.inputs, strict=False)))[0]
                for part in windows.batches(batch)
            ]
        )
        assert relative_error(forecasts[batch], expected, scale).max() <= 1e-5
    assert relative_error(forecasts[64], forecasts[1], scale).max() <= 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_every_check_passes_on_the_right_model(bundles, checkpoints, name):
    loaded = load(checkpoints[name])
    windows = synthetic(loaded.info, 32, seed=1)
    verified = verify(loaded.model, loaded.info.scaler, bundles[name], windows)
    verification = verified.verification
    assert verification.passed
    compared = {check.name.split(",")[1].strip() for check in verification.checks}
    assert {"batch 1", "batch 3", "batch 64"} <= compared
    assert {stage.name for stage in loaded.model.stages} <= compared
    assert verified.forecast.dtype == np.float64
    assert all(check.tolerance == RULES["float32"].forecast for check in verification.checks)
    assert verified.largest_error <= RULES["float32"].forecast


@pytest.mark.parametrize(("name", "limit"), [("patchtst", 100_000), ("autoformer", 200_000)])
def test_what_is_compared_comes_in_batches_that_fit(bundles, checkpoints, monkeypatch, name, limit):
    loaded = load(checkpoints[name])
    windows = synthetic(loaded.info, 12, seed=1)
    kinds = list(adversarial(windows.take(slice(4)), loaded.info.scaler, seed=1))
    arguments = (loaded.model, loaded.info.scaler, bundles[name], windows, kinds)
    whole = verify(*arguments)

    handed = []

    class Watched(PlainModel):
        def __call__(self, windows):
            # The maps of a batch are gone before those of the next are made.
            assert not any(reference() for reference in handed)
            made = super().__call__(windows)
            assert sum(output.nbytes for output in made.outputs.values()) <= limit
            handed.append(weakref.ref(made))
            return made

    monkeypatch.setattr(verification, "PlainModel", Watched)
    monkeypatch.setattr(batches, "LIMIT", limit)
    size = batches.windows_that_fit(loaded.model, explained=True)
    assert 1 <= size < 12
    found = verify(*arguments)
    assert len(handed) > 12 // size
    np.testing.assert_allclose(found.forecast, whole.forecast, rtol=1e-9)
    checks = {check.name: check for check in found.verification.checks}
    among = max(3, size)
    assert f"{layout.FORECAST_GRAPH}, alone against among {among}, synthetic windows" in checks
    assert f"{layout.FORECAST_GRAPH}, batch 64, synthetic windows" not in checks
    for check in whole.verification.checks:
        known = checks[check.name.replace("64", str(among))]
        assert (known.windows, known.excluded) == (check.windows, check.excluded)
        assert known.passed


@pytest.mark.parametrize("name", CONFIGS)
def test_another_model_fails(bundles, checkpoints, name):
    loaded = load(checkpoints[name])
    weight = next(w for n, w in loaded.model.named_parameters() if "feed_forward.expand" in n)
    with torch.no_grad():
        weight.mul_(1.001)
    windows = synthetic(loaded.info, 16, seed=1)
    verified = verify(loaded.model, loaded.info.scaler, bundles[name], windows)
    verification = verified.verification
    assert not verification.passed


def test_wrong_correlations_excuse_no_window(bundles, checkpoints):
    loaded = load(checkpoints["autoformer"])
    windows = synthetic(loaded.info, 32, seed=1)
    with torch.no_grad():
        loaded.model.encoder_layers[0].attention.query.weight.neg_()
    verified = verify(loaded.model, loaded.info.scaler, bundles["autoformer"], windows)
    verification = verified.verification
    assert not verification.passed
    assert max(check.excluded for check in verification.checks) <= 3


def test_wrong_attention_fails(bundles, checkpoints):
    """The forecasts agree, only the maps differ: the explain graph is another model's."""
    loaded = load(checkpoints["patchtst"])
    windows = synthetic(loaded.info, 16, seed=1)

    class Sharpened(type(loaded.model)):
        def explain(self, *inputs):
            explained = super().explain(*inputs)
            maps = {
                name: attention._replace(weights=attention.weights**2)
                for name, attention in explained.attention.items()
            }
            return explained._replace(attention=maps)

    loaded.model.__class__ = Sharpened
    verified = verify(loaded.model, loaded.info.scaler, bundles["patchtst"], windows)
    verification = verified.verification
    failed = [check.name for check in verification.checks if not check.passed]
    assert failed == [
        f"{layout.EXPLAIN_GRAPH}, {stage.name}, synthetic windows" for stage in loaded.model.stages
    ]


def periodic(loaded, count):
    """Windows that repeat exactly every four steps: lags four apart tie."""
    windows = synthetic(loaded.info, count, seed=2)
    history = np.tile(windows.history[:, :4], (1, 12, 1))
    zeros = [np.zeros_like(part) for part in (windows.history_calendar, windows.future_calendar)]
    return WindowSet("periodic", history, *zeros)


def test_ill_conditioned_windows_are_left_out_and_counted(bundles, checkpoints):
    loaded = load(checkpoints["autoformer"])
    good = synthetic(loaded.info, 8, seed=1)
    ties = periodic(loaded, 4)
    both = WindowSet(
        "mixed", *(np.concatenate(pair) for pair in zip(good.inputs, ties.inputs, strict=True))
    )
    verified = verify(loaded.model, loaded.info.scaler, bundles["autoformer"], both)
    verification, best = verified.verification, verified.windows
    assert verification.passed
    assert all(check.excluded >= 4 for check in verification.checks)
    # The best-conditioned windows come first, ties last.
    assert not any((best.history[0] == tie).all() for tie in ties.history)


@pytest.mark.parametrize(("good", "ties"), [(1, 4), (8, 12)])
def test_more_than_half_ill_conditioned_windows_are_an_error(bundles, checkpoints, good, ties):
    loaded = load(checkpoints["autoformer"])
    both = zip(
        synthetic(loaded.info, good, seed=1).inputs, periodic(loaded, ties).inputs, strict=True
    )
    windows = WindowSet("mixed", *(np.concatenate(pair) for pair in both))
    with pytest.raises(ExportError, match=rf"of {good + ties} mixed .* ill-conditioned, more than"):
        verify(loaded.model, loaded.info.scaler, bundles["autoformer"], windows)


def test_a_graph_must_tell_how_clearly_it_chose(bundles, checkpoints, monkeypatch):
    loaded = load(checkpoints["autoformer"])

    class Silent(verification.Graph):
        def __init__(self, path, **options):
            super().__init__(path, **options)
            self.outputs = [name if name != "margin" else "other" for name in self.outputs]

    monkeypatch.setattr(verification, "Graph", Silent)
    with pytest.raises(ExportError, match="no output `margin` tells how clearly"):
        verify(
            loaded.model,
            loaded.info.scaler,
            bundles["autoformer"],
            synthetic(loaded.info, 8, seed=1),
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_adversarial_windows(bundles, checkpoints, name):
    loaded = load(checkpoints[name])
    scaler = loaded.info.scaler
    windows = synthetic(loaded.info, 8, seed=1)
    kinds = list(adversarial(windows, scaler, seed=1))
    verification = verify(loaded.model, scaler, bundles[name], windows, kinds).verification
    assert verification.passed
    found = {check.name: check for check in verification.checks}
    # There all correlations are rounding.
    lost = ["offset 10000"] if name == "autoformer" else []
    for kind in kinds:
        said = f"{layout.FORECAST_GRAPH}, {kind.name} windows"
        said += ": not compared" if kind.name in lost else ""
        assert (found[said].windows == 0) == (kind.name in lost)
        chose = name == "autoformer" and kind.name not in lost
        assert (f"choices, {kind.name} windows" in found) == chose
    share = found["share of adversarial kinds that were not compared"]
    assert (share.max_error, share.tolerance) == (len(lost) / len(kinds), 0.75)


def test_other_lags_on_adversarial_windows_fail(bundles, checkpoints):
    loaded = load(checkpoints["autoformer"])
    scaler = loaded.info.scaler
    windows = synthetic(loaded.info, 8, seed=1)
    kinds = [kind for kind in adversarial(windows, scaler, seed=1) if kind.name == "trend"]
    with torch.no_grad():
        loaded.model.encoder_layers[0].attention.query.weight.neg_()
    verification = verify(loaded.model, scaler, bundles["autoformer"], windows, kinds).verification
    (lags,) = [check for check in verification.checks if check.name == "choices, trend windows"]
    assert not lags.passed


@pytest.mark.parametrize(("ties", "passed"), [(3, True), (4, False)])
def test_a_quarter_of_the_adversarial_kinds_must_be_compared(bundles, checkpoints, ties, passed):
    loaded = load(checkpoints["autoformer"])
    scaler = loaded.info.scaler
    windows = synthetic(loaded.info, 8, seed=1)
    kinds = [kind for kind in adversarial(windows, scaler, seed=1) if kind.name == "trend"]
    kinds += [replace(periodic(loaded, 8), name=f"ties {number}") for number in range(ties)]
    verification = verify(loaded.model, scaler, bundles["autoformer"], windows, kinds).verification
    idle = [check for check in verification.checks if check.windows == 0]
    assert [check.name for check in idle] == [
        f"{layout.FORECAST_GRAPH}, ties {number} windows: not compared" for number in range(ties)
    ]
    assert verification.passed == passed
    failed = [check.name for check in verification.checks if not check.passed]
    assert failed == [] if passed else ["share of adversarial kinds that were not compared"]


def test_a_forecast_that_is_not_finite_is_an_error(bundles, checkpoints):
    loaded = load(checkpoints["patchtst"])
    windows = synthetic(loaded.info, 4, seed=1)
    windows.history[2] = np.nan
    with pytest.raises(ExportError, match=r"1 of 4 synthetic windows .* not finite"):
        verify(loaded.model, loaded.info.scaler, bundles["patchtst"], windows)


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
    # The windows that have other lags are the ones that are left out.
    assert batch.excluded == round(share.max_error * 64)
    assert RULES["float32"].forecast < verified.largest_error <= rules.forecast
    assert checks["explain.onnx, encoder.0.self, synthetic windows"].tolerance == rules.attention
    assert not any(name.startswith("choices") for name in checks)
    assert 1e-6 < verified.margin_bound < 0.1


def test_half_precision_does_not_pass_for_float32(reduced):
    _, folder, (info, model) = reduced
    windows = synthetic(info, 16, seed=1)
    assert not verify(model, info.scaler, folder, windows).verification.passed


def test_another_model_fails_in_half_precision(reduced):
    precision, folder, (info, model) = reduced
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.projection.weight.mul_(1.1)
    windows = synthetic(info, 16, seed=1)
    verification = verify(changed, info.scaler, folder, windows, (), precision).verification
    assert not verification.passed


def test_other_lags_fail_in_half_precision(reduced):
    precision, folder, (info, model) = reduced
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.encoder_layers[0].attention.query.weight.neg_()
    windows = synthetic(info, 16, seed=1)
    verification = verify(changed, info.scaler, folder, windows, (), precision).verification
    (share,) = [check for check in verification.checks if check.name.startswith("share with")]
    assert share.max_error == 1
    assert not share.passed
