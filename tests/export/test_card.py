"""The model card of a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from huggingface_hub import ModelCard

from foretell.bundle import layout, manifest
from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.manifest import Manifest
from foretell.bundle.placement import publish
from foretell.export import card
from foretell.export.markdown import text
from foretell.export.origin import Origin
from foretell.export.write import export_checkpoint
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.checkpoint import TrainingRecord, load, save
from foretell.models.config import ForecasterConfig
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.bundles import Spec, write_bundle

RECORD = TrainingRecord(
    seed=7,
    epochs=9,
    best_epoch=4,
    validation_loss=0.25,
    loss="huber",
    learning_rate=0.001,
    batch_size=32,
    precision="float32",
    device="cpu",
    libraries={},
)
NOTHING = Origin(weights="ab" * 32, training=None, data=None, periods={})


def read(bundle: Path) -> ModelCard:
    """A card as the hub's own library reads it."""
    return ModelCard((bundle / layout.CARD).read_text())


def written(folder: Path, about: Manifest, origin: Origin = NOTHING) -> str:
    card.write(folder, about, origin)
    return (folder / layout.CARD).read_text()


@pytest.fixture
def trained(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    """The bundle of a model with a record of its training, and data of 700 hours."""
    info, model = load(checkpoints["patchtst"])
    save(tmp_path / "trained", model, info.model_copy(update={"training": RECORD}))
    return export_checkpoint(tmp_path / "trained", tmp_path / "repository", anyway=True)


def test_card_of_a_trained_model(trained: Path) -> None:
    about, found = manifest.read(trained), read(trained)
    assert layout.CARD in about.files
    data = found.data.to_dict()
    assert data["library_name"] == "foretell"
    assert data["pipeline_tag"] == "time-series-forecasting"
    assert "license" not in data
    assert "base_model" not in data
    assert about.test is not None
    assert about.test.onnx is not None
    results = {each.metric_type: each for each in found.data.eval_results}
    assert results["mse"].metric_value == pytest.approx(about.test.onnx.mse)
    assert results["mae"].metric_value == pytest.approx(about.test.onnx.mae)
    assert (results["mae"].dataset_name, results["mae"].dataset_type) == ("energy.csv", "csv")
    content = found.text
    assert "# patchtst that forecasts load, price, wind" in content
    assert f"{about.parameters:,} trained parameters" in content
    # 70% and 20% of 700 hours, from 2024-01-01 on.
    assert "- training rows: 2024-01-01T00:00:00 to 2024-01-21T08:00:00" in content
    assert "- test rows: 2024-01-24T08:00:00 to 2024-01-30T03:00:00" in content
    assert "- epochs: 9; the weights are of epoch 4" in content
    assert "repeating the last day" in content
    assert "| 12 | " in content
    assert "| 80% | " in content
    assert "curl -s localhost:8000/models/MODEL/example" in content
    assert "imported" not in content


def test_card_of_an_imported_model_with_its_data(bundles: dict[str, Path]) -> None:
    content = read(bundles["autoformer"]).text
    assert "because the checkpoint was imported" in content
    assert "epochs" not in content
    assert "so times are required" in content


def test_card_without_data_has_no_accuracy(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(CONFIGS["patchtst"], None, tmp_path / "checkpoint")
    bundle = export_checkpoint(checkpoint, tmp_path, name="bare")
    found = read(bundle)
    assert not found.data.eval_results
    assert "metrics" not in found.data.to_dict()
    assert "## Accuracy" not in found.text
    assert "Its accuracy was not measured." in found.text
    assert "It has no quantiles: it was exported without the data" in found.text
    assert "test rows" not in found.text
    assert "-d @request.json" in found.text


def test_card_lists_covariates(tmp_path: Path) -> None:
    covariates = Covariates(
        future=(Covariate(name="sky", type="category", categories=("sun", "rain"), other=True),),
        past=(Covariate(name="wind"),),
        static=(Covariate(name="size"),),
    )
    spec = Spec(channels=("load", "wind"), targets=("load",), covariates=covariates)
    about = manifest.read(write_bundle(tmp_path, spec))
    content = written(tmp_path, about)
    assert r"| sky | for history and horizon | category: sun, rain; others are read as one |" in (
        content
    )
    assert "| wind | for history | number |" in content
    assert "| size | for each series | number |" in content
    assert "| wind | no, only read |" in content


def test_card_escapes_names(tmp_path: Path) -> None:
    names = ("a|b", "<script>", "**x**", "# y\n- z", "https://example.org", "[l](m)")
    about = manifest.read(write_bundle(tmp_path, Spec(channels=names)))
    content = written(tmp_path, about)
    assert r"| a\|b | yes |" in content
    assert r"\<script\>" in content
    assert r"\*\*x\*\*" in content
    assert r"\# y - z" in content
    assert r"https\:\/\/example.org" in content
    assert r"\[l\]\(m\)" in content
    headings = [line for line in content.splitlines() if line.startswith("#")]
    assert len(headings) == 6


def test_text_is_one_line_without_controls() -> None:
    assert text("a\u2028b\x1b[0m www.b.c\n") == r"a b \[0m www\.b.c"


def test_front_matter_is_safe_yaml(trained: Path, tmp_path: Path) -> None:
    about = manifest.read(trained)
    origin = Origin.of(tmp_path / "trained", load(tmp_path / "trained").info, None)
    assert origin.data is not None
    name = "---\nlicense: mit\n'\": !!python/object.csv"
    data = origin.data.model_copy(update={"path": Path(name)})
    content = written(trained, about, replace(origin, data=data))
    fields = yaml.safe_load(content.removeprefix("---\n").partition("\n---\n")[0])
    assert "license" not in fields
    assert fields["model-index"][0]["results"][0]["dataset"]["name"] == Path(name).name


def test_card_counts_channels_that_it_leaves_out(tmp_path: Path) -> None:
    names = tuple(f"c{place}" for place in range(50))
    content = written(tmp_path, manifest.read(write_bundle(tmp_path, Spec(channels=names))))
    assert "| c39 |" in content
    assert "| c40 |" not in content
    assert "The manifest names 10 more channels." in content
    assert "forecasts c0, c1, c2 and 47 more" in content


def test_only_the_provenance_names_the_exported_model(trained: Path) -> None:
    lines = [line for line in (trained / layout.CARD).read_text().splitlines() if "trained" in line]
    lines = [line for line in lines if "trained parameters" not in line]
    assert len(lines) == 1
    assert "UTC, as `trained` version 1, in float32" in lines[0]


def test_published_bundle_has_the_card(trained: Path, tmp_path: Path) -> None:
    copied = publish(trained, tmp_path / "other", name="renamed")
    assert (copied / layout.CARD).read_bytes() == (trained / layout.CARD).read_bytes()


def test_card_of_a_panel_names_its_series(tmp_path: Path) -> None:
    hours = np.arange(200)
    table = {
        "unique_id": np.repeat(["a", "b"], len(hours)),
        "ds": np.tile(np.datetime64("2024-01-01", "s") + hours.astype("m8[h]"), 2),
        "y": np.tile(np.sin(hours / 4), 2),
    }
    pd.DataFrame(table).to_csv(tmp_path / "houses.csv", index=False)
    config: ForecasterConfig = DLinearConfig(channels=1, context=24, horizon=4)
    checkpoint = checkpoint_of(config, tmp_path / "houses.csv", tmp_path / "houses")
    content = read(export_checkpoint(checkpoint, tmp_path / "repository")).text
    assert r"- data: houses.csv, 400 rows, 2 series" in content
