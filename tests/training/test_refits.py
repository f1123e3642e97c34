from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretell.bundle.calibration import FLOOR, order_statistics, scale
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.data.table import Table
from foretell.models.checkpoint import REFITS, CheckpointError, load_refits
from foretell.timeaxis.frequency import Frequency
from foretell.training import refits
from foretell.training.config import TrainingConfig
from foretell.training.preparation import prepare
from foretell.training.refits import refit_errors
from foretell.training.train import train
from foretell.training.trainer import Trainer
from foretell.training.windows import Windows
from tests.training.conftest import Recorder

CONTEXT, HORIZON = 12, 6
MONTHLY = Frequency.parse("MS")
SETTINGS = TrainingConfig(
    arch="dlinear",
    context=CONTEXT,
    horizon=HORIZON,
    model={"moving_average": 5},
    epochs=3,
    learning_rate=0.02,
    device="cpu",
)


def months(rows: int, seed: int = 0, **changes: Any) -> Panel:
    """A year's cycle with noise."""
    random = np.random.default_rng(seed)
    cycle = np.sin(np.arange(rows) * np.pi / 6)[:, None]
    values = 100 + 10 * cycle + random.normal(0, 5, (rows, 1))
    times = MONTHLY.steps_from(np.datetime64("1990-01-01"), rows)
    return Panel((Table(times, values, ("sales",), MONTHLY, **changes),))


def test_origins_follow_the_training_rows_of_a_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = months(120)
    prepared = prepare(SETTINGS, panel)
    known: list[int] = []
    fitted = refits.scaler_for

    def noted(config: Any, panel: Panel, spans: Any) -> Any:
        (span,) = spans
        known.append(span.end)
        return fitted(config, panel, spans)

    monkeypatch.setattr(refits, "scaler_for", noted)
    # Refits forecast the mean of their training rows.
    monkeypatch.setattr(Trainer, "run_epoch", lambda *_: None)

    def zeros(_: Any, history: torch.Tensor, *others: Any) -> torch.Tensor:
        return torch.zeros(len(history), HORIZON, 1)

    monkeypatch.setattr(prepared.config.build().__class__, "forward", zeros)
    found = refit_errors(SETTINGS, panel, prepared, 1, torch.device("cpu"))
    # 70% and 10% of 120 rows: 96.
    assert known == [48, 60, 72, 84]
    values = panel.tables[0].values
    expected = []
    for cut, following in zip(known, [60, 72, 84, 96], strict=True):
        mean = values[:cut].mean()
        for origin in range(cut, min(following, 96 - HORIZON + 1)):
            spread = values[origin - CONTEXT : origin].std()
            spread = max(spread, FLOOR * prepared.scaler.std[0])
            expected.append((values[origin:][:HORIZON] - mean) / spread)
    assert found.errors.shape == (43, HORIZON, 1)
    np.testing.assert_allclose(found.errors, np.stack(expected), rtol=1e-3, atol=1e-4)


def test_refits_without_training_rows_are_left_out() -> None:
    """Half of the rows are fewer than a window; the other refits have enough."""
    panel = months(100)
    settings = SETTINGS.model_copy(update={"context": 39, "horizon": 2})
    found = refit_errors(settings, panel, prepare(settings, panel), 1, torch.device("cpu"))
    # 70% and 10% of 100 rows: 80. Origins from row 50 to 78.
    assert len(found.errors) == 29


def test_refit_does_not_train_on_rows_after_its_forecast() -> None:
    """A series of two tables, with a hole between them."""
    (table,) = months(144).tables

    def parts(values: Any) -> Panel:
        pieces = (slice(0, 70), slice(80, 144))
        return Panel(
            tuple(
                replace(table, timestamps=table.timestamps[rows], values=values[rows], series="a")
                for rows in pieces
            )
        )

    later = table.values.copy()
    # All rows that follow those that the first two refits forecast.
    later[80:] += 1000
    first, device = parts(table.values), torch.device("cpu")
    prepared = prepare(SETTINGS, first)
    one, two = (refit_errors(SETTINGS, each, prepared, 2, device) for each in (first, parts(later)))
    # 107 rows are learnt from or validated on; the first refit knows 53 and forecasts from 53 on.
    np.testing.assert_array_equal(one.errors[:8], two.errors[:8])


@pytest.mark.parametrize(
    ("cut_at", "origin", "changed"),
    [(None, "2003-01", "2004-01"), (datetime(2006, 1, 1), "2000-07", "2001-07")],
)
def test_refit_does_not_train_on_later_rows_of_another_series(
    cut_at: datetime | None, origin: str, changed: str
) -> None:
    """The second series begins ten years later, so its first half is later than half of the
    rows."""

    def two_series(changed: str) -> Panel:
        (first,), (second,) = (months(240, seed, series=str(seed)).tables for seed in (0, 1))
        times = np.append(
            second.timestamps[120:], MONTHLY.steps_from(np.datetime64("2010-01-01"), 120)
        )
        tables = first, replace(second, timestamps=times)
        for table in tables:
            table.values[table.timestamps >= np.datetime64(changed)] += 20
        return Panel(tables)

    panels = two_series("2100-01"), two_series(changed)
    settings = SETTINGS.model_copy(update={"cut_at": cut_at})
    prepared, device = prepare(settings, panels[0]), torch.device("cpu")
    one, two = (refit_errors(settings, each, prepared, 2, device).errors for each in panels)
    first = int((np.datetime64(changed) - np.datetime64(origin)).astype(int)) - HORIZON + 1
    # Forecasts of the first refit for the first series, before the changed rows.
    np.testing.assert_array_equal(one[:first], two[:first])


def test_rows_of_the_test_split_do_not_count() -> None:
    panel, other = months(120), months(120)
    other.tables[0].values[96:] = 1e6
    device = torch.device("cpu")
    one, two = (
        refit_errors(SETTINGS, each, prepare(SETTINGS, each), 2, device) for each in (panel, other)
    )
    np.testing.assert_array_equal(one.errors, two.errors)


def test_short_data_end_with_intervals(tmp_path: Path) -> None:
    listener = Recorder()
    out = tmp_path / "sales"
    train(SETTINGS, months(120), out, progress=listener)
    assert "holds 7 windows, too few for prediction intervals" in listener.warnings[0]
    errors = load_refits(out)
    assert errors is not None
    assert errors.errors.shape == (43, HORIZON, 1)
    (out / REFITS).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"refits\.safetensors: "):
        load_refits(out)


def test_intervals_of_short_data_have_about_their_coverage(tmp_path: Path) -> None:
    """Twenty years of training rows, and two hundred years that follow the same pattern."""
    whole = months(2640)
    first = replace(whole.tables[0], timestamps=whole.tables[0].timestamps[:240])
    panel = Panel((replace(first, values=whole.tables[0].values[:240]),))
    settings = SETTINGS.model_copy(update={"horizon": 12, "epochs": 10})
    trained = train(settings, panel, tmp_path / "sales")
    errors = load_refits(tmp_path / "sales")
    assert errors is not None
    low, high = order_statistics(errors.errors, [0.1, 0.9])
    scaler = trained.info.scaler
    windows = Windows(whole, (Span(0, 240, 2640),), CONTEXT, 12, scaler)
    (batch,) = windows.batches(len(windows))
    with torch.inference_mode():
        error = (batch.target - trained.model(batch.history)).numpy()
    error /= scale(batch.history.numpy(), np.array([FLOOR]))
    held = ((low <= error) & (error <= high)).mean()
    assert 0.75 < held < 0.92


def test_long_data_are_not_refitted(tmp_path: Path) -> None:
    listener = Recorder()
    short = SETTINGS.model_copy(update={"epochs": 1})
    train(short, months(300), tmp_path / "sales", progress=listener)
    assert listener.warnings == []
    assert load_refits(tmp_path / "sales") is None
