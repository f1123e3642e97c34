"""Every mechanism from `foretell train` to the attention that a server answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle import manifest
from foretell.bundle.attention import AttentionStage
from foretell.models.attention.mechanism import MECHANISMS
from tests.docs.plugged import ask
from tests.every_mechanism import MODELS
from tests.support.process import Server


@pytest.fixture(scope="module")
def repository(every_mechanism: Path) -> Path:
    """Bundles of all models."""
    return every_mechanism / "models"


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(repository, tmp_path_factory.mktemp("log") / "log") as running:
        yield running


def described(repository: Path, name: str) -> dict[str, AttentionStage]:
    return {stage.name: stage for stage in manifest.read(repository / name / "1").attention}


def test_all_are_there(repository: Path) -> None:
    found = {stage.mechanism for name in MODELS for stage in described(repository, name).values()}
    assert found >= {name for name, one in MECHANISMS.items() if not one.made_of_others}


@pytest.mark.parametrize("name", MODELS)
def test_a_server_answers_what_each_looked_at(repository: Path, server: Server, name: str) -> None:
    stages = described(repository, name)
    assert manifest.read(repository / name / "1").devices == ("cuda", "cpu")
    answer = ask(server, name, attention={"stages": list(stages)})
    assert np.isfinite(answer["mean_forecast"]).all()
    shown: dict[str, dict[str, Any]] = {stage["name"]: stage for stage in answer["attention"]}
    assert shown.keys() == stages.keys()
    for stage in stages.values():
        found = shown[stage.name]
        assert (found["kind"], found["form"]) == (stage.mechanism, stage.form)
        for output in stage.outputs:
            part = output.name.removeprefix(stage.part(""))
            if output.name in stage.evidence:
                assert np.shape(found[part]) == output.shape
                assert np.isfinite(found[part]).all()
