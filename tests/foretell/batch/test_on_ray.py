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
    # Warnings of Ray about pydantic do not matter here.
    warnings.simplefilter("ignore")
    import ray
    from ray import cloudpickle
    from ray._private import state

from foretell.batch import on_ray
from foretell.batch.errors import BatchError
from foretell.batch.on_ray import run_parts
from foretell.batch.plan import Part
from foretell.batch.run import Summary, forecast_table
from foretell.batch.work import Done, Work, Worker
from foretell.signing.sign import sign
from tests.foretell.batch.tables import forecasts, here, many, rejected, run, table, task, wave
from tests.foretell.signing.keys import write_pair
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


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


def forecast(path: Path, bundle: Path, folder: Path) -> Summary:
    def execute(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        # Ray's workers may have another path of the bundle than the command.
        work = replace(work, bundle=Path("/nowhere"))
        return run_parts(work, parts, None, "local", lambda: bundle)

    return forecast_table(task(path, folder, bundle), execute, part_rows=100)


def test_forecasts_equal_those_of_processes(cluster: None, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec())
    given = pa.concat_tables([many(60), table({"short": wave(0, 3)})])
    path = tmp_path / "given.parquet"
    parquet.write_table(given, path, row_group_size=64)
    assert forecast(path, bundle, tmp_path).counts == (60, 1)
    names = [about["ActorClassName"] for about in state.actors().values()]
    assert sum("_Actor" in name for name in names) == 2
    run(path, bundle, tmp_path / "other")
    assert forecasts(tmp_path).equals(forecasts(tmp_path / "other"))
    assert rejected(tmp_path) == rejected(tmp_path / "other")
    # An error of a worker is raised by the command.
    (bundle / "forecast.onnx").write_bytes(b"")
    with pytest.raises(BatchError, match=r"Ray: .*forecast\.onnx"):
        forecast(path, bundle, tmp_path / "again")


def test_part_that_kills_its_process_repeatedly_ends_the_run(
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
    # Each retry starts a process, which imports its libraries.
    monkeypatch.setattr(on_ray, "_RETRIES", 1)
    # Workers get the module with the changes of this test.
    cloudpickle.register_pickle_by_value(on_ray)
    path = tmp_path / "given.parquet"
    parquet.write_table(many(40), path, row_group_size=64)
    try:
        with pytest.raises(BatchError, match="Ray: ") as raised:
            forecast(path, write_bundle(tmp_path, Spec()), tmp_path)
    finally:
        cloudpickle.unregister_pickle_by_value(on_ray)
    assert "\n" not in str(raised.value)
    assert begun.read_text() == "xx"
    monkeypatch.undo()
    assert forecast(path, tmp_path / "repeat" / "1", tmp_path).counts == (40, 0)


def test_nodes_read_the_bundle_that_was_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other nodes find the bundle where the command did, and accept only its manifest."""
    bundle = write_bundle(tmp_path / "models", Spec())
    other = write_bundle(tmp_path / "other", Spec(burn=1))
    pair = write_pair(tmp_path, "own")
    sign(bundle, pair.private)
    path = tmp_path / "given.parquet"
    parquet.write_table(many(3), path)
    found = [bundle, other]

    def on_a_node(
        work: Work, parts: Sequence[Part], *, find: Callable[[], Path], **_: object
    ) -> Iterator[Done]:
        assert work.bundle != find() == bundle
        return here(replace(work, bundle=found.pop(0)), parts)

    monkeypatch.setattr(on_ray, "run_parts", on_a_node)
    words = [f"--model={bundle.parent}", "--ray=local", f"--signed-by={pair.public}"]
    done("batch", path, tmp_path / "out", *words)
    message = refused("batch", path, tmp_path / "again", *words)
    assert f"{other}: is not the bundle that the run began with" in message


def test_nodes_take_the_path_of_the_bundle_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path, Spec()).rename(tmp_path / "name@1")
    path = tmp_path / "given.parquet"
    parquet.write_table(many(3), path)

    def on_a_node(
        work: Work, parts: Sequence[Part], *, find: Callable[[], Path], **_: object
    ) -> Iterator[Done]:
        return here(replace(work, bundle=find()), parts)

    monkeypatch.setattr(on_ray, "run_parts", on_a_node)
    # A version ends the text; this is the name of a folder.
    done("batch", path, tmp_path / "out", f"--model={bundle}/", "--ray=local")


def test_missing_cluster_is_an_error(tmp_path: Path) -> None:
    bundle, path = write_bundle(tmp_path, Spec()), tmp_path / "given.parquet"
    parquet.write_table(many(3), path)
    with pytest.raises(BatchError, match="Ray: "):
        forecast_table(
            task(path, tmp_path, bundle),
            lambda *each: run_parts(*each, None, "nowhere", lambda: bundle),
        )
