"""Tables in a bucket, of a server of S3 on this machine."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from pyarrow import csv, parquet

from foretell.batch.preparation import Asked
from foretell.batch.run import Progress, forecast_table
from foretell.storage.errors import StorageError
from foretell.storage.location import open_location
from tests.foretell.batch.tables import forecasts, here, many, run
from tests.foretell.storage.conftest import bucket, environment, s3

__all__ = ["bucket", "environment", "s3"]


def test_from_a_bucket_to_a_bucket(bucket: str, models: Path, tmp_path: Path) -> None:
    store = open_location(bucket).store
    parquet.write_table(many(40), tmp_path / "a.parquet", row_group_size=64)
    csv.write_csv(many(40), tmp_path / "a.csv")
    for name in ("a.parquet", "a.csv"):
        obstore.put(store, f"{name[2:]}/given/{name}", tmp_path / name)
    obstore.put(store, "parquet/given/_note.csv", b"not read")
    bundle = models / "repeat" / "1"
    other = tmp_path / "other"
    other.mkdir()
    run(many(40), bundle, other)
    for number, source in enumerate(
        ("parquet/given", "parquet/given/a.parquet", "csv/given/a.csv")
    ):
        out = f"{bucket}/out-{number}"
        asked = Asked(f"{bucket}/{source}", out, bundle, device="cpu")
        for before in (0, 40):
            summary = forecast_table(asked, here, Progress(), 100)
            assert (summary.counts, summary.before) == ((40, 0), before)
        folder = tmp_path / str(number) / "out" / "forecasts"
        folder.mkdir(parents=True)
        there = open_location(out).store
        for found in obstore.list(there, "forecasts").collect():
            name = found["path"].rpartition("/")[2]
            (folder / name).write_bytes(bytes(obstore.get(there, found["path"]).bytes()))
        order = [("unique_id", "ascending"), ("step", "ascending")]
        rows = forecasts(tmp_path / str(number)).sort_by(order)
        assert rows["forecast"].equals(forecasts(other).sort_by(order)["forecast"])
        assert obstore.get(there, "_SUCCESS").bytes() == b""


def test_a_bucket_that_is_not_there(
    environment: pytest.MonkeyPatch, models: Path, tmp_path: Path
) -> None:
    asked = Asked("s3://nowhere/table", str(tmp_path), models / "repeat" / "1", device="cpu")
    with pytest.raises(StorageError, match="s3://nowhere/table"):
        forecast_table(asked, here, Progress())
