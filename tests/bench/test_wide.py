from __future__ import annotations

from pathlib import Path

from bench.wide import (
    CHANNELS,
    LONG_MODEL,
    MODEL,
    ROWS,
    _long_text,
    _text,
    _write_data,
    _write_long,
)
from foretell.data.reading import read
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.training.preparation import prepare
from foretell.tuning.space import training_with


def test_every_split_of_the_data_has_windows(tmp_path: Path) -> None:
    _write_data(tmp_path / "wide.csv", 4)
    panel = read(tmp_path / "wide.csv")
    prepared = prepare(training_with({}, MODEL), panel)
    assert len(panel) == ROWS
    assert min(map(len, (prepared.train, prepared.validation, prepared.test))) >= 10
    assert isinstance(prepared.config, PatchTSTConfig)
    assert (prepared.config.patch, prepared.config.stride, prepared.config.patches) == (16, 8, 42)


def test_the_page_says_what_was_measured() -> None:
    text = _text(CHANNELS, {"train": (3274.2, 100.4), "export": (3054.0, 1000.0)})
    assert "One map of one window has 24 million numbers; float64 for all layers takes\n557" in text
    assert "| `foretell train` | 3,274 | 100 |" in text


def test_every_part_of_most_series_has_windows(tmp_path: Path) -> None:
    lengths = _write_long(tmp_path / "long.parquet", 30)
    panel = read(tmp_path / "long.parquet")
    assert sorted(map(len, panel.tables)) == sorted(lengths)
    assert len(panel.series) == 30
    prepared = prepare(training_with({}, LONG_MODEL), panel)
    assert prepared.split.trained_on_only == prepared.split.left_out == ()
    text = _long_text(lengths, 2e6, {"train": (812.4, 60.2)})
    assert f"Its {len(prepared.train):,} training\nwindows" in text
    assert "| `foretell train` | 812 | 60 |" in text
