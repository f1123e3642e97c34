"""Models of libraries, and servers of them, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from click.testing import CliRunner

from foretell.commands.import_ import command
from tests.importers import (
    huggingface,
    neuralforecast,
    neuralforecast_exogenous,
    published,
    timexer,
)
from tests.importers.conformance import Reference, words
from tests.service.client import Client

CASES = huggingface.CASES | neuralforecast.CASES | published.CASES
CASES |= neuralforecast_exogenous.CASES | timexer.CASES


@pytest.fixture(scope="session")
def refer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Forecasts of the library of a case; skips without the library."""
    root = tmp_path_factory.mktemp("saved")
    return cache(lambda name: CASES[name].refer(root / name))


@pytest.fixture(scope="session")
def served(
    refer: Callable[[str], Reference], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Client]]:
    """A server of the model of a case, `model`, which the command has imported and exported."""
    root, clients = tmp_path_factory.mktemp("repositories"), []

    @cache
    def serve(name: str) -> Client:
        options = [
            "--repository",
            str(root / name),
            "--out",
            str(root / f"{name} out"),
            "--name",
            "model",
        ]
        done = CliRunner().invoke(command, [*words(refer(name).request), *options])
        assert done.exit_code == 0, done.output
        clients.append(Client(root / name))
        return clients[-1]

    yield serve
    for client in clients:
        client.__exit__(None, None, None)
