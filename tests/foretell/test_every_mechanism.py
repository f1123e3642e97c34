"""Every mechanism from `foretell train` to the attention that a server answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle import manifest
from foretell.bundle.attention import AttentionStage
from foretell.models.attention.mechanism import MECHANISMS
from tests.docs.plugged import ask, bundles_with
from tests.models.attention.places import PLACES, allowed, default
from tests.service.process import Server

# Those of the places.
SIZES = ["--arch=transformer", "--label=8", "--d-model=8", "--heads=2", "--d-ff=8"]
AT_ONCE = 6


def models() -> dict[str, tuple[int, list[str]]]:
    """Encoder layers, and the mechanism of each stage: every one is in one stage at least."""
    left = [name for name in MECHANISMS if allowed(name, PLACES["decoder"])]
    others = [name for name in MECHANISMS if name not in left]
    found = {}
    for start in range(0, len(others), AT_ONCE):
        some = others[start : start + AT_ONCE]
        found[f"encoder-{start}"] = len(some), [*some, "softmax", "softmax"]
    decoder: list[str] = []
    while left:
        own = left.pop(0)
        # Exports take their time: where another can be, it saves a layer.
        cross = next((name for name in left if allowed(name, PLACES["cross"])), "softmax")
        left = [name for name in left if name != cross]
        decoder += [own, cross]
    for start in range(0, len(decoder), AT_ONCE):
        found[f"decoder-{start}"] = 1, ["softmax", *decoder[start : start + AT_ONCE]]
    return found


MODELS = models()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models, trained, exported and verified by the command line."""
    folder = tmp_path_factory.mktemp("every")
    flags = {}
    for name, (encoder, stages) in MODELS.items():
        settings = {"attention": [default(each).model_dump(mode="json") for each in stages]}
        config = folder / f"{name}.yaml"
        config.write_text(json.dumps(settings))
        decoder = (len(stages) - encoder) // 2
        layers = [f"--encoder-layers={encoder}", f"--decoder-layers={decoder}"]
        flags[name] = [f"--config={config}", *SIZES, *layers]
    plugged = folder / "nothing"
    plugged.mkdir()
    return bundles_with("foretell.models.attention", plugged, flags)


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
