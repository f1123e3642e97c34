"""Models with covariates as bundles: exported, verified, and tested by the server's own test."""

from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import layout
from foretell.bundle.manifest import read
from foretell.export.write import export_checkpoint, verify_bundle
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.service.arrays import input_shapes
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.selftest import SelfTest
from tests.support.variants import COVARIATED, Size, scaler_of


@pytest.mark.parametrize("size", COVARIATED, ids=lambda size: size.name)
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
