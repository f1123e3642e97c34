"""`foretell compare` and `foretell promote --if-better`, with a real server and its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import serving
from tests.service.client import Client
from tests.service.ledger.test_compare import Scene
from tests.support import command
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server]]:
    """A repository, and a server whose ledger prefers version 2 to 1, and knows no more of 3."""
    folder = tmp_path_factory.mktemp("compare")
    models, url = folder / "models", f"sqlite:///{folder / 'ledger.db'}"
    for version in ("1", "2", "3"):
        write_bundle(models, Spec(name="calibrated", version=version, calibrated=3))
    rng = np.random.default_rng(0)
    truth = rng.normal(size=1000)
    origins = np.arange(10, 900)
    future = np.stack([truth[at + 1 : at + 5] for at in origins])
    with Client(models) as client:
        scene = Scene(url, client)
        for version, error in (("1", 1.0), ("2", 0.8), ("3", 1.0)):
            own = future + error * rng.normal(size=future.shape)
            scene.forecast(version, "a", origins, own)
        scene.observe("a", truth)
        scene.store.close()
    with Server(models, folder / "server.log", ledger=url) as server:
        yield models, server


def test_compare_prints_the_verdict(served: tuple[Path, Server]) -> None:
    _, server = served
    text = command.done("compare", "calibrated", "1", "2", f"--url={server.url}").output
    assert "890 windows of 1 series" in text
    assert "calibrated@2" in text.splitlines()[-1]


def test_series_are_chosen_by_frequency_and_namespace(served: tuple[Path, Server]) -> None:
    _, server = served
    words = ("compare", "calibrated", "1", "2", f"--url={server.url}", "--frequency")
    assert "890 windows" in command.done(*words, "h").output
    assert "0 windows" in command.done(*words, "d").output
    words = ("accuracy", "calibrated", f"--url={server.url}")
    assert "no scores" in command.refused(*words, "--frequency=d")
    assert "only admin keys" in command.refused(*words, "--namespace=other")


def test_better_version_is_promoted(served: tuple[Path, Server]) -> None:
    models, server = served
    options = (f"--repository={models}", "--if-better", f"--url={server.url}")
    command.done("promote", "calibrated@1", f"--repository={models}")
    assert "version 2 serves" in command.done("promote", "calibrated@2", *options).output
    assert serving.read(models, "calibrated").pin == "2"
    for version in ("1", "3"):
        message = command.refused("promote", f"calibrated@{version}", *options)
        assert f"calibrated@{version} is not promoted" in message
        assert serving.read(models, "calibrated").pin == "2"
    assert "serves now" in command.refused("promote", "calibrated@2", *options)


def test_server_without_a_ledger_is_named(tmp_path: Path, served: tuple[Path, Server]) -> None:
    models, _ = served
    with Server(models, tmp_path / "server.log") as server:
        message = command.refused("compare", "calibrated", "1", "2", f"--url={server.url}")
    assert "FORETELL_LEDGER" in message
