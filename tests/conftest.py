from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch

from bench.gpu.prepare import prepare
from foretell.bundle.manifest import Precision
from foretell.export.write import export_checkpoint
from tests.checkpoints import CONFIGS, checkpoint_of


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small models gain nothing from threads, and lose much where cores are shared."""
    torch.set_num_threads(1)


@pytest.fixture
def float64():
    """Makes modules, and the constants of their rewrites, in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """700 hours of three channels: daily cycles, noise and offsets of different size."""
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
    path = tmp_path_factory.mktemp("data") / "energy.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def checkpoints(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each architecture, by name."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {name: checkpoint_of(config, data, folder / name) for name, config in CONFIGS.items()}


@pytest.fixture(scope="session")
def bundles(
    checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The bundle of each checkpoint, by name."""
    repository = tmp_path_factory.mktemp("repository")
    return {name: export_checkpoint(folder, repository) for name, folder in checkpoints.items()}


@pytest.fixture(scope="session")
def gpu_folder(
    data: Path, checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What `bench.gpu.prepare` makes of the checkpoints; of PatchTST in every precision."""
    folder = tmp_path_factory.mktemp("gpu")
    for name, checkpoint in checkpoints.items():
        precisions = get_args(Precision) if name == "patchtst" else ("float32",)
        prepare(checkpoint, data, folder, precisions)
    return folder
