"""Checks that compare a graph with a model that has no scaler."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from foretell.bundle import archives, layout
from foretell.bundle.checksums import sha256
from foretell.bundle.manifest import Manifest, read
from foretell.bundle.measure import deviation_warning
from foretell.bundle.scaler import Scaler
from foretell.commands.verify import command
from foretell.data.reading import read as read_panel
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.export.write import export_checkpoint, verify_bundle
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.checkpoint import CheckpointInfo, load, save

CONTEXT, HORIZON = 16, 4


def table(folder: Path, size: float, level: float = 0.0) -> Path:
    values = level + size * np.random.default_rng(0).normal(size=200)
    times = pd.date_range("2024-01-01", periods=200, freq="h")
    path = folder / "returns.csv"
    pd.DataFrame({"date": times, "y": values}).to_csv(path, index=False, float_format="%.10g")
    return path


def unscaled(
    folder: Path, data: Path | None, head: str | None = None, scaler: Scaler | None = None
) -> Path:
    """A checkpoint as importers of NeuralForecast's models write them."""
    torch.manual_seed(0)
    config = DLinearConfig(
        channels=1,
        context=CONTEXT,
        horizon=HORIZON,
        moving_average=5,
        window_norm="standard",
        head=head,
    )
    source = None if data is None else DataSource.of(read_panel(data), Splits.by_fraction())
    info = CheckpointInfo(
        config=config,
        channels=("y",),
        frequency="h",
        scaler=scaler or Scaler.identity(1),
        data=source,
    )
    save(folder, config.build().eval(), info)
    return folder


def changed(checkpoint: Path, folder: Path, factor: float, rows: slice = slice(None)) -> Path:
    """The checkpoint, some rows of its weights multiplied by a factor."""
    info, model = load(checkpoint)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[rows] *= factor
    save(folder, model, info)
    return folder


def with_probes(bundle: Path, factor: float) -> Manifest:
    """The bundle, the forecasts of its probes multiplied by a factor, with a correct sum."""
    path = bundle / layout.PROBES
    arrays = archives.load(path, "forecast")
    np.savez(path, **arrays | {"forecast": arrays["forecast"] * np.float32(factor)})
    manifest = read(bundle)
    files = dict(manifest.files) | {layout.PROBES: sha256(path)}
    manifest = manifest.model_copy(update={"files": files})
    (bundle / layout.MANIFEST).write_text(manifest.model_dump_json())
    return manifest


@pytest.mark.parametrize("size", [1e-4, 1e5])
@pytest.mark.parametrize("known", ["at training", "at export", "at verification", "never"])
def test_graph_with_ten_percent_error_is_refused(tmp_path: Path, size: float, known: str) -> None:
    data = table(tmp_path, size)
    own = unscaled(tmp_path / "own", data if known == "at training" else None)
    bundle = export_checkpoint(
        own, tmp_path / "models", data=data if known == "at export" else None
    )
    at_verification = data if known == "at verification" else None
    assert verify_bundle(bundle, own, at_verification).passed
    other = changed(own, tmp_path / "other", 1.1)
    assert not verify_bundle(bundle, other, at_verification).passed
    deviation = read(bundle).scaler.deviation
    if known in ("at training", "at export"):
        assert deviation is not None
        assert deviation[0] == pytest.approx(size, rel=0.2)
    else:
        assert deviation is None


@pytest.mark.parametrize("keeps", [True, False])
def test_probes_of_small_values_reveal_a_wrong_graph(tmp_path: Path, keeps: bool) -> None:
    """Manifests of earlier bundles have no deviation."""
    own = unscaled(tmp_path / "own", table(tmp_path, 1e-4))
    bundle = export_checkpoint(own, tmp_path / "models")

    def verified() -> int:
        return CliRunner().invoke(command, [str(bundle)]).exit_code

    if not keeps:
        manifest = read(bundle).model_copy(update={"scaler": Scaler.identity(1)})
        (bundle / layout.MANIFEST).write_text(manifest.model_dump_json())
    assert verified() == 0
    with_probes(bundle, 1.1)
    assert verified() == 1


@pytest.mark.parametrize("size", [1e-3, 1e5])
@pytest.mark.parametrize(
    ("head", "place", "count"),
    [
        ("student-t", 0, 3),
        ("student-t", 2, 3),
        ("normal", 1, 2),
        ("neuralforecast-student-t", 0, 3),
        ("neuralforecast-normal", 1, 2),
    ],
)
def test_parameter_without_a_unit_is_compared_on_its_own_scale(
    tmp_path: Path, size: float, head: str, place: int, count: int
) -> None:
    own = unscaled(tmp_path / "own", table(tmp_path, size), head)
    bundle = export_checkpoint(own, tmp_path / "models")
    assert verify_bundle(bundle, own).passed
    rows = slice(place * HORIZON, (place + 1) * HORIZON)
    other = changed(own, tmp_path / "other", 3.0, rows)
    assert other != own
    assert not verify_bundle(bundle, other).passed
    assert len(read(bundle).distribution.parameters) == count


def test_warning_of_a_large_level_is_in_deviations(tmp_path: Path) -> None:
    """For example pressure in pascals: an error of float32 is small only next to the level."""
    own = unscaled(tmp_path / "own", table(tmp_path, 1.0, level=1e5))
    bundle = export_checkpoint(own, tmp_path / "models")
    manifest = read(bundle)
    (error,) = manifest.verification.deviations
    assert 1e-3 <= error < 0.1
    warning = deviation_warning(manifest.verification, manifest.targets, manifest.precision)
    assert warning is not None
    assert "y by 0.0" in warning
    assert "subtract a constant from the data" in warning
    result = CliRunner().invoke(command, [str(bundle), "--checkpoint", str(own)])
    assert result.exit_code == 0
    assert warning in result.stderr
    small = unscaled(tmp_path / "small", table(tmp_path, 1.0))
    manifest = read(export_checkpoint(small, tmp_path / "models"))
    assert deviation_warning(manifest.verification, manifest.targets, "float32") is None
