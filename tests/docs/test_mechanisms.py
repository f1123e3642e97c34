"""The page on mechanisms is right about those there are, and its example can be plugged in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from foretell.bundle import manifest
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.forecaster import ARCHITECTURES
from foretell.settings.given import training_of
from tests.docs.pages import blocks
from tests.docs.plugged import CONTEXT, HORIZON, ask, bundles_with, write_example
from tests.docs.tables import rows_below
from tests.support.process import ROOT, Server

PAGE = ROOT / "docs" / "guides" / "mechanisms.md"
HEADS = 2
SIZES = [
    "--set=model.d_model=8",
    f"--set=model.heads={HEADS}",
    "--set=model.d_ff=8",
    "--set=model.encoder_layers=1",
]
OWN = {
    "transformer": ["--set=model.label=8"],
    "patchtst": ["--set=model.patch=8", "--set=model.stride=4"],
}
PATCHES = (CONTEXT - 8) // 4 + 2


def test_the_table_is_of_those_there_are() -> None:
    for (name, _, form, causal), config in zip(
        rows_below(PAGE, "| name |"), MECHANISMS.values(), strict=True
    ):
        assert name == f"`{config.model_fields['mechanism'].default}`"
        assert form == ("of each" if config.made_of_others else f"`{config.form}`")
        assert causal == ("yes" if config.has_causal else "no")


def test_the_settings_are_read() -> None:
    (block,) = (block for block in blocks(PAGE) if block.language == "yaml")
    settings = training_of(yaml.safe_load(block.text))
    fields = {"context": settings.context, "horizon": settings.horizon, "channels": 1}
    config = ARCHITECTURES[settings.arch].model_validate(fields | settings.model)
    found = [one.model_dump() for one in config.attention]
    assert [one["mechanism"] for one in found] == ["autocorrelation"] * 2 + ["softmax"]
    assert [one.get("factor") for one in found] == [2, 3, None]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of models with the page's example."""
    folder = tmp_path_factory.mktemp("mechanism")
    plugged = write_example(PAGE, folder, "causal_mean.py")
    models = {
        arch: [f"--arch={arch}", "--set=model.attention=causal-mean", *SIZES, *own]
        for arch, own in OWN.items()
    }
    return bundles_with("foretell.models.attention", plugged, models)


@pytest.mark.parametrize("name", OWN)
def test_it_is_exported_plainly(repository: Path, name: str) -> None:
    found = manifest.read(repository / name / "1")
    assert {stage.mechanism for stage in found.attention} == {"causal-mean"}
    assert "CausalMean" in found.plain
    assert found.devices == ("cuda", "cpu")
    assert found.verification.passed


def test_a_server_without_the_file_shows_its_evidence(repository: Path, tmp_path: Path) -> None:
    with Server(repository, tmp_path / "log") as server:
        answers = {name: ask(server, name, attention=True)["attention"] for name in OWN}
    attention = {
        name: {stage["name"]: stage["weights"] for stage in stages}
        for name, stages in answers.items()
    }
    stages = attention["transformer"]
    steps = {"encoder.0.self": (-CONTEXT, -CONTEXT), "decoder.0.self": (-8, -8)}
    steps |= {"decoder.0.cross": (-8, -CONTEXT)}
    ends = {-CONTEXT: 0, -8: HORIZON}
    assert stages.keys() == steps.keys()
    for name, (query, key) in steps.items():
        wanted = mean_up_to(np.arange(query, ends[query]), np.arange(key, ends[key]))
        np.testing.assert_allclose(stages[name], [wanted] * HEADS, rtol=1e-5)
    patches = np.arange(PATCHES)
    wanted = mean_up_to(patches, patches)
    (found,) = attention["patchtst"].values()
    np.testing.assert_allclose(found, [[wanted] * HEADS] * 2, rtol=1e-5)


def mean_up_to(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    read = (key <= query[:, None]).astype(float)
    return read / read.sum(axis=1, keepdims=True)
