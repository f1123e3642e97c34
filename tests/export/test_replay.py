import shutil

import numpy as np
import pytest

from bundle import layout
from bundle.checksums import sha256
from bundle.errors import BundleError
from bundle.manifest import read
from export.replay import replay
from tests.export.conftest import CONFIGS


@pytest.mark.parametrize("name", CONFIGS)
def test_a_fresh_bundle_passes(bundles, name):
    manifest, verification = replay(bundles[name])
    assert manifest.name == name
    assert verification.passed
    assert len(verification.checks) == 2


def test_a_changed_file_is_an_error(bundles, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(bundles["patchtst"], folder)
    weights = folder / layout.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(BundleError, match=r"weights\.bin: sha256 differs"):
        replay(folder)


def test_other_forecasts_fail(bundles, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(bundles["patchtst"], folder)
    with np.load(folder / layout.PROBES) as probes:
        arrays = dict(probes)
    arrays["forecast"] = arrays["forecast"] * 1.001
    np.savez(folder / layout.PROBES, **arrays)
    manifest = read(folder)
    files = manifest.files | {layout.PROBES: sha256(folder / layout.PROBES)}
    changed = manifest.model_copy(update={"files": files})
    (folder / layout.MANIFEST).write_text(changed.model_dump_json())
    assert not replay(folder)[1].passed
