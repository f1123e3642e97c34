"""`foretell batch`, and its tables, forecasts and models in a bucket of S3 on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from pyarrow import csv, dataset, parquet

from foretell.batch import workers
from foretell.batch.errors import BatchError
from foretell.batch.places import place_of
from foretell.batch.prepare import Task
from foretell.batch.run import forecast_table
from foretell.storage.location import open_location
from foretell.storage.repository import publish
from tests.foretell.batch.tables import forecasts, here, many, run
from tests.foretell.storage.conftest import bucket, environment, s3
from tests.support import command
from tests.support.bundles import Spec, write_bundle

__all__ = ["bucket", "environment", "s3"]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Words for a table, which the command forecasts in this process into `out`."""
    monkeypatch.setattr(workers, "run_parts", lambda work, parts, workers: here(work, parts))
    path = tmp_path / "given.parquet"
    parquet.write_table(many(20), path, row_group_size=64)
    return ["batch", path, tmp_path / "out", "--device", "cpu"]


def test_table_is_forecast(words: list[object], models: Path, tmp_path: Path) -> None:
    words += ["--model", models / "calibrated", "--horizon", 3, "--quantiles", "0.1,0.9"]
    output = command.done(*words).output
    assert output.startswith(f"20 series forecast in {tmp_path}/out; 20 in ")
    assert output.endswith(" series/s\n")
    found = forecasts(tmp_path)
    assert found.column_names[3:6] == ["forecast", "q0.1", "q0.9"]
    assert len(found) == 60
    again = command.done(*words).output
    assert again == f"20 series forecast in {tmp_path}/out; 20 of them before\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--model", "nowhere"), "foretell batch: nowhere: there is no bundle"),
        (("--horizon", "99"), "foretell batch: --horizon: expected at most"),
        (("--id-column", "x"), "expected one column 'x'"),
        ((), "{out}"),
    ],
)
def test_bad_input_ends_with_2(
    words: list[object], models: Path, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    if not options:
        # A place that cannot be written.
        (tmp_path / "out").touch()
    message = command.refused(*words, "--model", models / "repeat", *options)
    assert expected.format(out=tmp_path / "out") in message


def test_interruption_prints_the_command_to_resume(
    words: list[object], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(work: Any, parts: Any, workers: int | None) -> Iterator[Any]:
        yield from here(work, parts[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "run_parts", interrupted)
    done = command.run(*words, "--model", models / "repeat", "--part-rows", 64)
    assert done.exit_code == 130
    assert "the same command continues with what is left" in done.output


def test_from_a_bucket_to_a_bucket(bucket: str, models: Path, tmp_path: Path) -> None:
    store = open_location(bucket).store
    parquet.write_table(many(40), tmp_path / "a.parquet", row_group_size=64)
    csv.write_csv(many(40), tmp_path / "a.csv")
    for name in ("a.parquet", "a.csv"):
        obstore.put(store, f"{name[2:]}/given/{name}", tmp_path / name)
    obstore.put(store, "parquet/given/_note.csv", b"not read")
    bundle = models / "repeat" / "1"
    run(many(40), bundle, tmp_path / "other")
    expected = forecasts(tmp_path / "other")
    for number, source in enumerate(
        ("parquet/given", "parquet/given/a.parquet", "csv/given/a.csv")
    ):
        out = f"{bucket}/out-{number}"
        task = Task(f"{bucket}/{source}", out, bundle, device="cpu")
        for before in (0, 40):
            summary = forecast_table(task, here, part_rows=100)
            assert (summary.counts, summary.before) == ((40, 0), before)
        place = place_of(f"{out}/forecasts")
        found = dataset.dataset(place.path(""), filesystem=place.system).to_table()
        assert found["forecast"].equals(expected["forecast"])
        names = {entry["path"] for entry in obstore.list(open_location(out).store).collect()}
        assert {"_SUCCESS", "_foretell.json"} <= names
        assert not any("/." in name for name in names)


@pytest.mark.parametrize(
    ("url", "message", "variables"),
    [
        ("s3://nowhere/table", "", {}),
        ("s3://nowhere/table", ".*expected an address", {"AWS_ENDPOINT_URL": "minio:9000"}),
        ("az://container/table", "AZURE_STORAGE_ACCOUNT_NAME is not set", {}),
        ("ftp://host/table", "expected s3://", {}),
    ],
)
def test_table_that_cannot_be_read(
    url: str,
    message: str,
    variables: dict[str, str],
    environment: pytest.MonkeyPatch,
    models: Path,
    tmp_path: Path,
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    with pytest.raises(BatchError, match=f"^{url}: {message}"):
        forecast_table(Task(url, str(tmp_path), models / "repeat" / "1", device="cpu"), here)


def test_model_of_a_bucket(
    words: list[object], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(write_bundle(tmp_path / "models", Spec()), open_location(bucket), version="10")
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    command.done(*words, "--model", f"{bucket}/repeat")
    assert set(forecasts(tmp_path)["version"].to_pylist()) == {"10"}
    assert list((tmp_path / "cache").rglob("manifest.json"))
    message = command.refused(*words, "--model", f"{bucket}/nothing")
    assert "/nothing: there is no bundle" in message
