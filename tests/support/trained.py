"""Fixtures of trained models, their checkpoints and bundles; a conftest imports those it needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.export.write import export_checkpoint
from foretell.models.attention.mechanism import MECHANISMS
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.docs.plugged import bundles_with
from tests.models.attention.places import PLACES, allowed, default

Once = Callable[[str, Callable[[Path], object]], Path]
_DATA = "energy.csv"
# Settings of a model with mechanisms at all sites.
SIZES = [
    "--arch=transformer",
    "--set=model.label=8",
    "--set=model.d_model=8",
    "--set=model.heads=2",
    "--set=model.d_ff=8",
]
AT_ONCE = 6
# Models of each form of evidence, and one that chooses: encoder layers, and mechanisms by stage.
FORMS = {"forms": (4, ["probsparse", "local", "autocorrelation", "fourier", "softmax", "softmax"])}


def models() -> dict[str, tuple[int, list[str]]]:
    """Encoder layers, and a mechanism for each stage, so that every mechanism occurs."""
    left = [name for name in MECHANISMS if allowed(name, PLACES["decoder"])]
    others = [name for name in MECHANISMS if name not in left]
    found = {}
    for start in range(0, len(others), AT_ONCE):
        some = others[start : start + AT_ONCE]
        found[f"encoder-{start}"] = len(some), [*some, "softmax", "softmax"]
    decoder: list[str] = []
    while left:
        own = left.pop(0)
        # A mechanism that may be there too saves a layer, and exports are slow.
        cross = next((name for name in left if allowed(name, PLACES["cross"])), "softmax")
        left = [name for name in left if name != cross]
        decoder += [own, cross]
    for start in range(0, len(decoder), AT_ONCE):
        found[f"decoder-{start}"] = 1, ["softmax", *decoder[start : start + AT_ONCE]]
    return found


MODELS = models()


@pytest.fixture(scope="session")
def in_turn(worker_id: str) -> list[str]:
    """Names of `CONFIGS`, in another order for each process, so that they seldom wait."""
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
        # Remains of an export that failed.
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


def train_and_export(folder: Path, models: dict[str, tuple[int, list[str]]]) -> None:
    """Train `folder / name` and export to `folder / "models"` by the command line."""
    flags = {}
    for name, (encoder, stages) in models.items():
        settings = {
            "model": {"attention": [default(each).model_dump(mode="json") for each in stages]}
        }
        config = folder / f"{name}.yaml"
        config.write_text(json.dumps(settings))
        decoder = (len(stages) - encoder) // 2
        layers = [f"--set=model.encoder_layers={encoder}", f"--set=model.decoder_layers={decoder}"]
        flags[name] = [f"--config={config}", *SIZES, *layers]
    plugged = folder / "nothing"
    plugged.mkdir()
    bundles_with("foretell.models.attention", plugged, flags)
