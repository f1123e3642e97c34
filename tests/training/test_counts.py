"""Heads of counts next to norms of windows, data that are no counts, refits and bounds."""

from typing import Any

import numpy as np
import pytest
import torch

from foretell.bundle.bounds import Bound
from foretell.bundle.scaler import Scaler
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.models.heads import HEADS
from foretell.models.layers.window_norms import WINDOW_NORMS
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import evaluate
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.preparation import forecaster_config, prepare
from foretell.training.progress import Progress
from foretell.training.refits import refit_errors
from foretell.training.trainer import Trainer
from foretell.training.windows import Windows

CONTEXT, HORIZON = 24, 4
HOUR = Frequency.parse("h")
COUNTS = [name for name, head in HEADS.items() if head.is_of_counts]
NORMS = [*WINDOW_NORMS, "magnitude+mean", "identity+mean", "mean+magnitude", None]


def settings(head: str, arch: str = "dlinear", **model: Any) -> TrainingConfig:
    own = {"moving_average": 5} if arch == "dlinear" else {}
    return TrainingConfig(
        arch=arch,
        context=CONTEXT,
        horizon=HORIZON,
        epochs=3,
        learning_rate=0.01,
        device="cpu",
        model={"head": head} | own | model,
    )


def panel_of(values: Any, channels: tuple[str, ...] = ("sales",)) -> Panel:
    rows = np.asarray(values, float).reshape(len(values), len(channels))
    times = HOUR.steps_from(np.datetime64("2024-01-01"), len(rows))
    return Panel((Table(times, rows, channels, HOUR),))


def counts(rows: int = 300, level: float = 100) -> Panel:
    """Counts whose level is another one every fifty rows."""
    random = np.random.default_rng(0)
    levels = np.repeat(random.uniform(0.6, 1.5, -(-rows // 50)) * level, 50)[:rows]
    return panel_of(random.poisson(levels))


def histories(level: int) -> torch.Tensor:
    random = np.random.default_rng(1)
    return torch.tensor(random.poisson(100, (16, CONTEXT, 1)) + level, dtype=torch.float32)


@pytest.mark.parametrize("head", COUNTS)
def test_training_with_defaults_forecasts_the_level_of_the_window(head: str) -> None:
    given = settings(head)
    prepared = prepare(given, counts())
    device = torch.device("cpu")
    trainer = Trainer(prepared.config, prepared.train, prepared.validation, given, device)
    while not trainer.finished:
        trainer.run_epoch(Progress())
    trainer.restore_best()
    with torch.inference_mode():
        found = [float(trainer.model(histories(level)).mean()) for level in (0, 1000)]
    assert found[0] == pytest.approx(100, rel=0.3)
    assert found[1] == pytest.approx(1100, rel=0.3)


LEVELLESS = ("poisson", "negative-binomial")
SCALING = ("magnitude", "magnitude+mean")
PLAIN = (None, "identity")


@pytest.mark.parametrize("head", COUNTS)
@pytest.mark.parametrize("norm", [norm for norm in NORMS if norm not in PLAIN])
def test_a_norm_of_windows_keeps_the_level_or_is_refused(head: str, norm: str) -> None:
    """For any weights, also those of an untrained network."""
    given = settings(head, window_norm=norm)
    if head in LEVELLESS and norm not in SCALING:
        with pytest.raises(TrainingError, match="take magnitude, or head neuralforecast-"):
            forecaster_config(given, ("sales",), HOUR)
        return
    torch.manual_seed(0)
    model = forecaster_config(given, ("sales",), HOUR).build()
    with torch.inference_mode():
        low, high = (float(model(histories(level)).mean()) for level in (0, 1000))
    assert high - low > 500


@pytest.mark.parametrize("norm", PLAIN)
def test_a_head_of_exponentials_needs_a_norm(norm: str | None) -> None:
    with pytest.raises(TrainingError, match="exponential of its output: take magnitude"):
        forecaster_config(settings("negative-binomial", window_norm=norm), ("sales",), HOUR)
    forecaster_config(settings("poisson", window_norm=norm), ("sales",), HOUR)


@pytest.mark.parametrize("head", COUNTS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-3.0, r"channel 'sales': 2 of 300 rows are negative, the first at .*T07:00:00 \(-3\)"),
        (2.5, r"channel 'sales': 2 of 300 rows are not whole numbers, the first at .* \(2\.5\)"),
    ],
)
def test_targets_must_be_counts(head: str, value: float, message: str) -> None:
    panel = counts()
    panel.tables[0].values[[7, 299]] = value
    with pytest.raises(DataError, match=rf"{message}.*head student-t or normal"):
        prepare(settings(head), panel)
    prepare(settings("student-t"), panel)


def test_other_channels_need_not_be_counts() -> None:
    sold = counts().tables[0].values
    both = panel_of(np.column_stack([sold - 0.5, sold]), ("temperature", "sales"))
    given = settings("poisson").model_copy(update={"target": ("sales",)})
    assert prepare(given, both).scaler.is_identity
    with pytest.raises(DataError, match="channel 'temperature'"):
        prepare(settings("poisson"), both)


def test_counts_may_have_a_rounding_error() -> None:
    panel = counts()
    panel.tables[0].values[:] = panel.tables[0].values / 49 * 49
    prepare(settings("negative-binomial"), panel)


@pytest.mark.parametrize("head", ["poisson", "negative-binomial"])
def test_a_scaling_that_subtracts_the_level_is_refused(head: str) -> None:
    sizes = {"value_lags": (1, 2), "d_model": 8, "heads": 2}
    given = settings(head, "huggingface-autoformer", scaling="mean", **sizes)
    with pytest.raises(TrainingError, match="scaling: mean subtracts the level"):
        forecaster_config(given, ("sales",), HOUR)
    forecaster_config(settings(head, "huggingface-autoformer", **sizes), ("sales",), HOUR)


def test_refits_train_on_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[torch.Tensor] = []
    begin = Trainer.__init__

    def noted(self: Trainer, config: Any, train: Windows, *others: Any) -> None:
        learnt.append(train.values)
        begin(self, config, train, *others)

    monkeypatch.setattr(Trainer, "__init__", noted)
    panel, given = counts(150), settings("negative-binomial")
    refit_errors(given, panel, prepare(given, panel), 1, torch.device("cpu"))
    assert len(learnt) == 4
    for values in learnt:
        assert torch.equal(values, values.round())
        assert values.min() > 10


def test_refit_errors_are_of_clipped_forecasts() -> None:
    panel = counts(150)
    free = settings("poisson")
    narrow = free.model_copy(update={"bounds": {"sales": Bound(high=90)}})
    device = torch.device("cpu")
    one, two = (
        refit_errors(each, panel, prepare(each, panel), 1, device) for each in (free, narrow)
    )
    np.testing.assert_array_equal(one.forecasts, two.forecasts)
    assert (one.forecasts > 90).any()
    expected = (two.actuals - np.minimum(two.forecasts, 90)) / two.scales
    np.testing.assert_allclose(two.errors, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(one.errors, two.errors)


def test_errors_of_counts_are_in_deviations_of_the_training_rows() -> None:
    given = settings("poisson")
    prepared = prepare(given, counts())
    known = prepared.scaler
    assert known.deviation is not None
    assert known.is_identity
    raw = Windows.of(prepared.config, counts(), prepared.split.test, Scaler.identity(1))

    def last(history: torch.Tensor, *_: Any) -> torch.Tensor:
        return history[:, -1:]

    found, plain = (evaluate(last, each, 64).mae for each in (prepared.test, raw))
    assert found * known.deviation[0] == pytest.approx(plain)
    assert 0.1 < found < 5
