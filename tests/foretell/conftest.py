from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from foretell.commands.export import command as export
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.foretell.server import FakeServer
from tests.support.trained import every_form, every_mechanism

__all__ = ["every_form", "every_mechanism"]

CONTEXT, HORIZON = 4, 2
SERVED = {
    "name": "weather",
    "versions": ["2", "3"],
    "channels": ["wind", "load"],
    "context": CONTEXT,
    "horizon": HORIZON,
    "frequency": "h",
    "version": "3",
}


def answer(**changes: Any) -> dict[str, Any]:
    """The forecast of two hours that follow `data`."""
    content = {
        "mean_forecast": [[5.5, 50.0], [6.5, 60.0]],
        "timestamps": ["2024-01-01T06:00:00+01:00", "2024-01-01T07:00:00+01:00"],
    }
    outputs = [{"content": [content], "error": None}]
    return {"model": "weather", "model_version": "3", "outputs": outputs} | changes


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Six hours; its columns are more than the model's, and in another order."""
    rows = [f"2024-01-01T0{hour}:00:00+01:00,{hour}0,x,{hour}.5" for hour in range(6)]
    path = tmp_path / "weather.csv"
    path.write_text("\n".join(["date,load,note,wind", *rows]) + "\n")
    return path


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer({"/models": (200, [SERVED]), "/forecast": (200, answer())}) as server:
        yield server


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small PatchTST with random weights and three channels, `channel 0` to `channel 2`."""
    return checkpoint_of(CONFIGS["patchtst"], None, tmp_path_factory.mktemp("trained") / "small")


@pytest.fixture(scope="session")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The repository that `foretell export` made of it, and what it said."""
    repository = tmp_path_factory.mktemp("repository")
    return repository, CliRunner().invoke(export, [str(checkpoint), f"--out={repository}"])
