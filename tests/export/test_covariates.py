"""Models with covariates as bundles: exported, verified, and tested by the server's own test."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle import example, layout
from foretell.bundle.covariates import NO_COVARIATES, Covariate, Covariates
from foretell.bundle.errors import BundleError
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest, read
from foretell.bundle.scaler import Scaler
from foretell.data.coding import recoded
from foretell.data.reading import Reading, read_frame
from foretell.export.runtime import Graph
from foretell.export.sample import example_of
from foretell.export.write import export_checkpoint, verify_bundle
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.service.arrays import input_shapes
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.selftest import SelfTest
from foretell.service.forecast.codes import value_of
from tests.bundle.test_manifest import FIELDS
from tests.service.client import Client
from tests.support.variants import COVARIATED, TIDES, Size, scaler_of
from tests.training.test_covariates import frame


@pytest.mark.parametrize("size", [*COVARIATED, TIDES[0]], ids=lambda size: size.name)
def test_bundle_with_covariates_is_verified_and_served(size: Size, tmp_path: Path) -> None:
    config = size.config
    names = tuple(f"channel {place}" for place in range(config.channels))
    info = CheckpointInfo(config=config, channels=names, frequency="h", scaler=scaler_of(size))
    save(tmp_path / "model", size.model(), info)
    bundle = export_checkpoint(tmp_path / "model", tmp_path / "repository")

    manifest = read(bundle)
    assert manifest.format == 3
    assert manifest.covariates == config.covariates
    shapes = input_shapes(manifest)
    with np.load(bundle / layout.PROBES) as probes:
        assert {name: probes[name].shape[1:] for name in shapes} == shapes
    session = Runtime("cpu").open(bundle / layout.FORECAST_GRAPH)
    test = SelfTest(bundle, manifest, (bundle / layout.PROBES).read_bytes(), 4)
    test.check_interface(session, layout.FORECAST_GRAPH)
    test.replay(session)
    assert verify_bundle(bundle, tmp_path / "model").passed
    if manifest.calendar is None:
        check_answers(bundle, manifest)


def check_answers(bundle: Path, manifest: Manifest) -> None:
    """Probes, sent by name in JSON, give the forecasts of the plain model."""
    known = manifest.covariates or NO_COVARIATES
    with np.load(bundle / layout.PROBES) as loaded:
        probes = {name: rows.astype(np.float64) for name, rows in loaded.items()}
    inputs = []
    for row, history in enumerate(probes["history"]):
        entry = {"series": history.tolist(), "future_covariates": {}, "static_covariates": {}}
        for place, each in enumerate(known.future):
            parts = [probes[f"{when}_covariates"][row, :, place] for when in ("history", "future")]
            codes = np.concatenate(parts).tolist()
            entry["future_covariates"][each.name] = [value_of(each, code) for code in codes]
        for place, each in enumerate(known.static):
            code = probes["static_covariates"][row, place]
            entry["static_covariates"][each.name] = value_of(each, code)
        inputs.append(entry)
    with Client(bundle.parents[1]) as client:
        answer = client.forecast({"inputs": inputs})
    assert answer.status_code == 200, answer.text
    found = [output["content"][0]["mean_forecast"] for output in answer.json()["outputs"]]
    np.testing.assert_allclose(found, probes["forecast"], rtol=1e-3, atol=1e-3)


def test_example_of_a_bundle_has_covariates(tmp_path: Path) -> None:
    covariates = Covariates(future=(Covariate(name="price"),), static=(Covariate(name="size"),))
    fields = FIELDS | {"format": 3, "covariates": covariates, "files": {layout.EXAMPLE: "ab" * 32}}
    manifest = Manifest.model_validate(fields | {"calibration": None})
    rows, horizon = 30, manifest.horizon
    random = np.random.default_rng(0)
    found = Example(
        random.normal(size=(rows, 2)),
        np.full(rows, "2024-01-01T00:00:00"),
        random.normal(size=(horizon, 2)),
        future_covariates=random.normal(size=(rows + horizon, 1)),
        static_covariates=random.normal(size=1),
    )
    example.write(tmp_path, found)
    np.testing.assert_equal(vars(example.read(tmp_path, manifest)), vars(found))
    assert found.future_covariates is not None
    example.write(tmp_path, replace(found, future_covariates=found.future_covariates[1:]))
    with pytest.raises(BundleError, match="future_covariates: expected 36 steps"):
        example.read(tmp_path, manifest)
    example.write(tmp_path, replace(found, static_covariates=None))
    with pytest.raises(BundleError, match="lacks static_covariates"):
        example.read(tmp_path, manifest)


def test_example_has_the_codes_of_the_model() -> None:
    panel = read_frame(frame("a")[["id", "ds", "y", "sky"]], Reading(future_covariates=("sky",)))
    sky = Covariate(name="sky", type="category", categories=("sun", "rain"))
    config = DLinearConfig(
        channels=len(panel.channels),
        context=24,
        horizon=4,
        covariates=Covariates(future=(sky,)),
        covariate_decoder=True,
    )
    scaler = Scaler.identity(config.channels)
    info = CheckpointInfo(config=config, channels=panel.channels, frequency="h", scaler=scaler)

    class Zeros:
        def predict(self, history: Tensor, *_: object) -> NDArray[np.float32]:
            return np.zeros((len(history), 4, config.channels), np.float32)

    found = example_of(cast("Graph", Zeros()), info, recoded(panel, config.covariates), 8)
    (table,) = panel.tables
    first = int(np.flatnonzero(table.values[:, 0] == found.history[0, 0])[0])
    assert table.covariates is not None
    assert found.future_covariates is not None
    of_table = table.covariates[first : first + len(found.future_covariates)]
    # The table has rain as 0, the model has sun.
    np.testing.assert_array_equal(found.future_covariates, 1 - of_table)
