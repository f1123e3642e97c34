"""A cluster of one node on this machine."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
    from ray import cloudpickle
    from ray._private import state

from foretell.batch import on_ray
from foretell.batch.errors import BatchError
from foretell.batch.on_ray import run_parts
from foretell.batch.parts import Done, Work, Worker
from foretell.batch.plan import Part
from foretell.batch.preparation import Asked
from foretell.batch.run import Progress, Summary, forecast_table
from tests.foretell.batch.tables import forecasts, many, rejected, run, table, wave
from tests.support.bundles import Spec, write_bundle

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


def forecast(
    path: Path, bundle: Path, out: Path, find: Callable[[], Path] | None = None
) -> Summary:
    asked = Asked(str(path), str(out), bundle, device="cpu")

    def execute(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        if find is not None:
            # Who has begun the run has it somewhere else.
            work = replace(work, bundle=Path("/nowhere"))
        return run_parts(work, parts, None, "local", find)

    return forecast_table(asked, execute, Progress(), 100)


def test_the_same_as_on_processes(cluster: None, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec())
    given = pa.concat_tables([many(60), table({"short": wave(0, 3)})])
    path = tmp_path / "given.parquet"
    parquet.write_table(given, path, row_group_size=64)
    assert forecast(path, bundle, tmp_path / "out", lambda: bundle).counts == (60, 1)
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
        forecast(path, bundle, tmp_path / "again")


def test_a_part_that_ends_its_process_is_given_up(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"

    class Crashing(Worker):
        def run(self, part: Part, *_: object) -> Done:
            if part.number == 1:
                with begun.open("a") as file:
                    file.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
            return super().run(part)

    monkeypatch.setattr(on_ray, "Worker", Crashing)
    # With what is put into the module here.
    cloudpickle.register_pickle_by_value(on_ray)
    path = tmp_path / "given.parquet"
    parquet.write_table(many(40), path, row_group_size=64)
    try:
        with pytest.raises(BatchError) as told:
            forecast(path, write_bundle(tmp_path, Spec()), tmp_path / "out")
    finally:
        cloudpickle.unregister_pickle_by_value(on_ray)
    assert f"part 1 (from row 128 of {path}) has ended the process of its worker 3" in str(
        told.value
    )
    assert "the same command goes on: with fewer --workers" in str(told.value)
    assert "\n" not in str(told.value)
    assert begun.read_text() == "xxx"
    monkeypatch.undo()
    assert forecast(path, tmp_path / "repeat" / "1", tmp_path / "out").counts == (40, 0)


def test_parts_of_lost_nodes_are_at_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = {"a": True, "b": True, "c": True}
    monkeypatch.setattr(
        ray, "nodes", lambda: [{"NodeID": node, "Alive": is_it} for node, is_it in alive.items()]
    )
    tries = on_ray._Tries()
    assert [tries.begin(1, "a"), tries.begin(2, "a")] == [0, 0]
    alive["a"] = False
    assert [tries.begin(1, "b"), tries.begin(2, "c")] == [0, 0]
    assert [tries.begin(1, "c"), tries.begin(1, "c")] == [1, 2]
    # It dies with them, a moment after its workers.
    alive["c"] = False
    assert [tries.begin(1, "b"), tries.begin(2, "b")] == [1, 0]


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec())
    parquet.write_table(many(3), tmp_path / "given.parquet")
    asked = Asked(str(tmp_path / "given.parquet"), str(tmp_path / "out"), bundle, device="cpu")
    with pytest.raises(BatchError, match="Ray: "):
        forecast_table(asked, lambda *each: run_parts(*each, None, "nowhere"), Progress())
