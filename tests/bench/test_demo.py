from pathlib import Path

import numpy as np
import pytest

from bench.demo import by_step, draw
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Scaler
from foretell.models.data.panel import Panel
from foretell.models.data.splits import Span
from foretell.models.data.table import Table
from foretell.models.data.windows import Windows


def test_errors_by_step() -> None:
    """A line of slope 1 and one of slope 2 are missed by more with every step."""
    hourly = Frequency.parse("h")
    hours = np.arange(100.0)
    table = Table(
        hourly.steps_from(np.datetime64("2024-01-01", "us"), 100),
        np.column_stack([hours, 2 * hours]),
        ("a", "b"),
        hourly,
    )
    identity = Scaler(mean=(0.0, 0.0), std=(1.0, 1.0))
    windows = Windows(Panel((table,)), (Span(0, 0, 100),), 8, 3, identity)
    squared, absolute = by_step(
        lambda batch: batch.history[:, -1:].expand(-1, 3, -1), windows, np.array([1.0, 4.0])
    )
    np.testing.assert_allclose(absolute, np.array([1, 2, 3]) * (1 + 2 / 4) / 2)
    np.testing.assert_allclose(squared, np.array([1, 4, 9]) * (1 + 1 / 4) / 2)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_draws_a_line_for_each(tmp_path: Path, kind: str) -> None:
    errors = (np.linspace(0.2, 0.5, 24), np.linspace(0.1, 0.4, 24))
    path = tmp_path / f"demo.{kind}"
    draw({"patchtst": errors, "the last day": errors}, path)
    if kind == "svg":
        assert path.read_text().count("patchtst 0.350") == 1
        assert path.read_text().count("the last day 0.250") == 1
    else:
        assert path.read_bytes().startswith(b"\x89PNG")
