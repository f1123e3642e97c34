"""The pages on architectures and mechanisms are right, and their examples can be plugged in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from foretell.bundle import manifest
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.config import ARCHITECTURES, ForecasterConfig
from foretell.settings.given import training_of
from foretell.timeaxis.frequency import Frequency
from tests.docs.pages import blocks, rows_below
from tests.docs.plugged import CONTEXT, HORIZON, VALUES, ask, bundles_with, write_example
from tests.support.process import ROOT, Server

PAGES = {name: ROOT / "docs" / "guides" / f"{name}.md" for name in ("architectures", "mechanisms")}
HOURLY = Frequency.parse("h")
HEADS = 2
SIZES = {"d_model": 8, "heads": HEADS, "d_ff": 8, "encoder_layers": 1}
OWN = {"transformer": {"label": 8}, "patchtst": {"patch": 8, "stride": 4}}
PATCHES = (CONTEXT - 8) // 4 + 2


def flags(arch: str, **settings: object) -> list[str]:
    """Words of `foretell train` for settings of a model."""
    return [f"--arch={arch}", *(f"--set=model.{name}={one}" for name, one in settings.items())]


def smallest(family: type[ForecasterConfig]) -> ForecasterConfig:
    """A model with one layer of each kind."""
    layers = {name: 1 for name in family.model_fields if name.endswith("_layers")}
    return family(channels=1, context=96, horizon=24, **layers)


def test_table_of_architectures() -> None:
    for (name, _, calendar, attention, stages), family in zip(
        rows_below(PAGES["architectures"], "| name |"), ARCHITECTURES.values(), strict=True
    ):
        config = smallest(family)
        found = config.build().stages
        assert name == f"`{config.architecture}`"
        assert calendar == ("yes" if family.calendar_for(HOURLY, {}) else "no")
        assert attention == ", ".join(sorted({f"`{stage.mechanism}`" for stage in found}))
        assert stages == ", ".join(f"`{stage.name}`" for stage in found)


def test_table_of_mechanisms() -> None:
    for (name, _, form, causal), config in zip(
        rows_below(PAGES["mechanisms"], "| name |"), MECHANISMS.values(), strict=True
    ):
        assert name == f"`{config.model_fields['mechanism'].default}`"
        assert form == ("of each" if config.made_of_others else f"`{config.form}`")
        assert causal == ("yes" if config.has_causal else "no")


def test_settings_of_the_mechanisms_page_are_read() -> None:
    (block,) = (block for block in blocks(PAGES["mechanisms"]) if block.language == "yaml")
    settings = training_of(yaml.safe_load(block.text))
    fields = {"context": settings.context, "horizon": settings.horizon, "channels": 1}
    config = ARCHITECTURES[settings.arch].model_validate(fields | settings.model)
    found = [one.model_dump() for one in config.attention]
    assert [one["mechanism"] for one in found] == ["autocorrelation"] * 2 + ["softmax"]
    assert [one.get("factor") for one in found] == [2, 3, None]


@pytest.fixture(scope="module")
def architecture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a model of the page's example."""
    plugged = write_example(
        PAGES["architectures"], tmp_path_factory.mktemp("architecture"), "seasonal.py"
    )
    # Too small a rate to learn anything: the forecast is known.
    seasonal = [*flags("seasonal", season=4, window_norm="none"), "--set=learning_rate=1e-9"]
    return bundles_with("foretell.models.architectures", plugged, {"seasonal": seasonal})


def test_architecture_of_the_page_is_exported_and_served(
    architecture: Path, tmp_path: Path
) -> None:
    found = manifest.read(architecture / "seasonal" / "1")
    assert found.architecture == "seasonal"
    assert found.attention == found.plain == found.rewrites == ()
    assert found.devices == ("cuda", "cpu")
    with Server(architecture, tmp_path / "log") as server:
        answer = ask(server, "seasonal")
    season = np.tile(VALUES[-4:], (2, 1))[:HORIZON]
    # The rest is the bias, which starts below this.
    left = (answer["mean_forecast"] - season) / np.array(found.scaler.std)
    assert np.abs(left).max() < CONTEXT**-0.5 + 1e-4
    np.testing.assert_allclose(left[:, 0], left[:, 1], atol=1e-4)


@pytest.fixture(scope="module")
def mechanism(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of models with the page's example."""
    folder = tmp_path_factory.mktemp("mechanism")
    plugged = write_example(PAGES["mechanisms"], folder, "causal_mean.py")
    models = {
        arch: flags(arch, attention="causal-mean", **SIZES, **own) for arch, own in OWN.items()
    }
    return bundles_with("foretell.models.attention", plugged, models)


def test_mechanism_of_the_page_is_exported_and_its_evidence_served(
    mechanism: Path, tmp_path: Path
) -> None:
    for name in OWN:
        found = manifest.read(mechanism / name / "1")
        assert {stage.mechanism for stage in found.attention} == {"causal-mean"}
        assert "CausalMean" in found.plain
        assert found.devices == ("cuda", "cpu")
        assert found.verification.passed
    with Server(mechanism, tmp_path / "log") as server:
        attention = {
            name: {
                stage["name"]: stage["weights"]
                for stage in ask(server, name, attention=True)["attention"]
            }
            for name in OWN
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
    (weights,) = attention["patchtst"].values()
    np.testing.assert_allclose(weights, [[wanted] * HEADS] * 2, rtol=1e-5)


def mean_up_to(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    read = (key <= query[:, None]).astype(float)
    return read / read.sum(axis=1, keepdims=True)
