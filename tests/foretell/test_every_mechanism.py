"""Mechanisms from `foretell train` to the attention that a server answers: one of each form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle import manifest
from foretell.models.attention.mechanism import MECHANISMS
from tests.docs.plugged import ask
from tests.support.process import Server
from tests.support.trained import FORMS, MODELS


def mechanisms(models: dict[str, tuple[int, list[str]]]) -> set[str]:
    return {name for _, names in models.values() for name in names}


def test_models_have_every_form_and_every_mechanism() -> None:
    forms = {MECHANISMS[name].form for name in mechanisms(FORMS)}
    assert forms == {one.form for one in MECHANISMS.values()}
    alone = {name for name, one in MECHANISMS.items() if not one.made_of_others}
    assert mechanisms(MODELS) >= alone


@pytest.mark.parametrize(
    ("made", "names"),
    [
        ("every_form", list(FORMS)),
        pytest.param("every_mechanism", list(MODELS), marks=pytest.mark.slow),
    ],
)
def test_server_answers_attention_of_every_mechanism(
    request: pytest.FixtureRequest, tmp_path: Path, made: str, names: list[str]
) -> None:
    repository = request.getfixturevalue(made) / "models"
    with Server(repository, tmp_path / "log") as server:
        for name in names:
            check(server, manifest.read(repository / name / "1"), name)


def check(server: Server, about: manifest.Manifest, name: str) -> None:
    stages = {stage.name: stage for stage in about.attention}
    assert about.devices == ("cuda", "cpu")
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
