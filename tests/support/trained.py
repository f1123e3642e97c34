"""Fixtures of trained models, their checkpoints and bundles; a conftest imports those it needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.export.write import export_checkpoint
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.every_mechanism import FORMS, MODELS, train_and_export

Once = Callable[[str, Callable[[Path], object]], Path]
_DATA = "energy.csv"


@pytest.fixture(scope="session")
def in_turn(worker_id: str) -> list[str]:
    """Names of `CONFIGS`; each process begins with another, and seldom waits for the others."""
    names, first = list(CONFIGS), 0 if worker_id == "master" else int(worker_id[2:]) % len(CONFIGS)
    return names[first:] + names[:first]


@pytest.fixture(scope="session")
def data(once: Once) -> Path:
    """700 hours of three channels: daily cycles, noise and offsets of different size."""
    return once("data", _write_data) / _DATA


@pytest.fixture(scope="session")
def checkpoints(data: Path, once: Once) -> dict[str, Path]:
    """A checkpoint of each architecture, by name."""

    def save(folder: Path) -> None:
        for name, config in CONFIGS.items():
            checkpoint_of(config, data, folder / "checkpoints" / name)

    folder = once("checkpoints", save) / "checkpoints"
    return {name: folder / name for name in CONFIGS}


@pytest.fixture(scope="session")
def bundles(checkpoints: dict[str, Path], once: Once, in_turn: list[str]) -> dict[str, Path]:
    """The bundle of each checkpoint, by name."""

    def export(name: str, folder: Path) -> None:
        export_checkpoint(checkpoints[name], folder / "repository")

    return {
        name: once(f"bundle-{name}", partial(export, name)) / "repository" / name / "1"
        for name in in_turn
    }


@pytest.fixture(scope="session")
def every_form(once: Once) -> Path:
    """A model with a mechanism of each form of evidence, trained and exported."""
    return _mechanisms(once, "every-form", FORMS)


@pytest.fixture(scope="session")
def every_mechanism(once: Once) -> Path:
    """Models with all mechanisms, trained and exported."""
    return _mechanisms(once, "every-mechanism", MODELS)


def _mechanisms(once: Once, name: str, models: dict[str, tuple[int, list[str]]]) -> Path:
    def make(folder: Path) -> None:
        own = folder / name
        # Of one that failed.
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        train_and_export(own, models)

    return once(name, make) / name


def _write_data(folder: Path) -> None:
    random = np.random.default_rng(3)
    hour = np.arange(700)
    cycle = np.sin(2 * np.pi * hour / 24)
    table = pd.DataFrame(
        {
            "date": pd.date_range("2024-01-01", periods=len(hour), freq="h"),
            "load": 900 + 80 * cycle + random.normal(0, 15, len(hour)),
            "price": 40 + 9 * np.roll(cycle, 5) + random.normal(0, 4, len(hour)),
            "wind": random.normal(0, 0.1, len(hour)).cumsum(),
        }
    )
    table.to_csv(folder / _DATA, index=False)
