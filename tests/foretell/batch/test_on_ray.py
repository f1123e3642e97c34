"""A cluster of one node on this machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

# A busy machine takes its time; Ray reads this when it is imported.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
with warnings.catch_warnings():
    # What Ray does with pydantic is none of our doing.
    warnings.simplefilter("ignore")
    import ray
    from ray._private import state

from foretell.batch.errors import BatchError
from foretell.batch.on_ray import run_parts
from foretell.batch.preparation import Asked
from foretell.batch.run import Progress, Summary, forecast_table
from tests.foretell.batch.tables import forecasts, many, rejected, run, table, wave
from tests.service.bundles import Spec, write_bundle

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=80 * 1024 * 1024,
    )
    yield
    ray.shutdown()


def on_ray(path: Path, bundle: Path, out: Path) -> Summary:
    asked = Asked(str(path), str(out), bundle, device="cpu")

    def execute(work, parts):
        return run_parts(work, parts, None, "local")

    return forecast_table(asked, execute, Progress(), 100)


def test_the_same_as_on_processes(cluster: None, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec())
    given = pa.concat_tables([many(60), table({"short": wave(0, 3)})])
    path = tmp_path / "given.parquet"
    parquet.write_table(given, path, row_group_size=64)
    assert on_ray(path, bundle, tmp_path / "out").counts == (60, 1)
    names = [about["ActorClassName"] for about in state.actors().values()]
    assert sum("_Actor" in name for name in names) == 2
    other = tmp_path / "other"
    other.mkdir()
    run(path, bundle, other)
    assert forecasts(tmp_path).equals(forecasts(other))
    assert rejected(tmp_path) == rejected(other)
    # What fails there is told here.
    (bundle / "forecast.onnx").write_bytes(b"")
    with pytest.raises(BatchError, match=r"Ray: .*forecast\.onnx"):
        on_ray(path, bundle, tmp_path / "again")


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec())
    parquet.write_table(many(3), tmp_path / "given.parquet")
    asked = Asked(str(tmp_path / "given.parquet"), str(tmp_path / "out"), bundle, device="cpu")
    with pytest.raises(BatchError, match="Ray: "):
        forecast_table(asked, lambda *each: run_parts(*each, None, "nowhere"), Progress())
