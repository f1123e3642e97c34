"""Runs that begin, are interrupted, go on, and refuse to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from foretell.batch import run as run_module
from foretell.batch.errors import BatchError
from foretell.batch.places import Place
from foretell.batch.plan import Part
from foretell.batch.prepare import Task
from foretell.batch.run import forecast_table
from foretell.batch.work import Done, Work, Worker
from tests.foretell.batch.tables import forecasts, here, many, rejected, run, table, task, wave
from tests.support.bundles import Spec, write_bundle


def test_interrupted_run_resumes(models: Path, tmp_path: Path) -> None:
    given = pa.concat_tables([many(100), table({"t0": wave(0, 3), "z": wave(1, 8)})])
    given_path = tmp_path / "given.parquet"
    parquet.write_table(given, given_path, row_group_size=64)
    bundle = models / "repeat" / "1"

    def until(count: int) -> Any:
        def execute(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
            yield from here(work, parts[:count])
            if count < len(parts):
                raise KeyboardInterrupt

        return execute

    job = task(given_path, tmp_path, bundle)
    progress: list[tuple[int, int]] = []

    def report(done: int, rows: int) -> None:
        progress.append((done, rows))

    with pytest.raises(KeyboardInterrupt):
        forecast_table(job, until(3), report, 100)
    assert progress == [(0, 811), (128, 811), (256, 811), (384, 811)]
    out = tmp_path / "out"
    written = {file.name: file.stat().st_mtime_ns for file in (out / "forecasts").iterdir()}
    assert sorted(written) == [f"part-0000{number}.parquet" for number in range(3)]
    assert not (out / "_SUCCESS").exists()
    progress.clear()
    summary = forecast_table(job, until(99), report, 100)
    assert (progress[0], progress[-1]) == ((384, 811), (811, 811))
    assert (summary.counts, summary.before) == ((101, 1), 48)
    assert (out / "_SUCCESS").exists()
    for name, time in written.items():
        assert (out / "forecasts" / name).stat().st_mtime_ns == time
    run(given_path, bundle, tmp_path / "undisturbed")
    assert forecasts(tmp_path).equals(forecasts(tmp_path / "undisturbed"))
    assert rejected(tmp_path).keys() == {"t0"}
    # Nothing is left to do.
    third = forecast_table(job, until(0), report, 100)
    assert (third.counts, third.before) == ((101, 1), 102)


def test_run_whose_bundle_is_replaced_goes_on_once_it_is_back(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "models", Spec())
    kept, other = tmp_path / "kept", write_bundle(tmp_path / "other", Spec(burn=1))

    def replaced(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        yield from here(work, parts[:1])
        bundle.rename(kept)
        other.rename(bundle)
        yield from here(work, parts[1:])

    parquet.write_table(many(100), tmp_path / "given.parquet", row_group_size=64)
    job = task(tmp_path / "given.parquet", tmp_path, bundle)
    with pytest.raises(BatchError, match=r"put that one back and repeat the command, or write to"):
        forecast_table(job, replaced, part_rows=100)
    with pytest.raises(BatchError, match="out: holds a run of model"):
        forecast_table(job, here)
    elsewhere = job._replace(target=str(tmp_path / "elsewhere"))
    assert forecast_table(elsewhere, here).counts == (100, 0)
    bundle.rename(other)
    kept.rename(bundle)
    summary = forecast_table(job, here)
    assert summary.before > 0
    assert summary.counts == (100, 0)


def test_part_that_fails_leaves_nothing(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, *_: object) -> None:
        raise MemoryError

    given = pa.concat_tables([table({"bad": wave(0, 3)}), many(30)])
    with monkeypatch.context() as patch:
        patch.setattr("foretell.batch.output.Writer.add", fail)
        with pytest.raises(MemoryError):
            run(given, models / "repeat" / "1", tmp_path)
    files = [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files == ["_foretell.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 2}, "holds a run of other options: horizon 4, not 2; write to another place"),
        ({"missing": "ffill"}, "holds a run of other options: missing error, not ffill"),
        ({"quantiles": (0.1,)}, r"holds a run of other options: quantiles None, not \[0.1\]"),
        (
            {"bundle": "calibrated/2"},
            r"a run of model calibrated@1 \(\w+\), not calibrated@2",
        ),
        ({"given": many(21)}, "holds a run of another table, or its files were written since"),
        ({"changed": True}, "holds a run of model"),
    ],
)
def test_run_with_other_options_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(name="calibrated", version=version, calibrated=1))
    given = many(20)
    run(given, tmp_path / "calibrated" / "1", tmp_path)
    options = {"given": tmp_path / "given.parquet", "bundle": "calibrated/1"} | change
    bundle = tmp_path / options.pop("bundle")
    if options.pop("changed", False):
        about = json.loads((bundle / "manifest.json").read_bytes())
        (bundle / "manifest.json").write_text(json.dumps(about | {"parameters": 7}))
    with pytest.raises(BatchError, match=message):
        run(options.pop("given"), bundle, tmp_path, **options)


def test_foreign_folder_is_refused(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(BatchError, match="is not empty, and not of an earlier run"):
        run(many(3), models / "repeat" / "1", tmp_path)
    (out / "mine.txt").unlink()
    (out / "_foretell.json").write_text("{}")
    with pytest.raises(BatchError, match=r"_foretell.json: is not a record of this release"):
        run(many(3), models / "repeat" / "1", tmp_path)


def test_two_concurrent_runs_write_the_same(models: Path, tmp_path: Path) -> None:
    bundle, path = models / "repeat" / "1", tmp_path / "given.parquet"
    parquet.write_table(many(60), path, row_group_size=64)
    job = task(path, tmp_path, bundle)

    def beside(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        worker = Worker(work)
        stopped = iter([True])

        def go_on() -> bool:
            # Another run forecasts all parts while this one is within a part.
            if next(stopped, None):
                assert forecast_table(job, here, part_rows=100).counts == (60, 0)
            return True

        yield from (worker.run(part, go_on) for part in parts)
        worker.close()

    assert forecast_table(job, beside, part_rows=100).counts == (60, 0)
    run(path, bundle, tmp_path / "alone")
    assert forecasts(tmp_path).equals(forecasts(tmp_path / "alone"))


@pytest.mark.parametrize("url", ["", "s3"])
@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "part-0000[0-9].parquet: was written by another run"), ({"horizon": 2}, "other options")],
)
def test_runs_that_begin_together(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    options: dict[str, Any],
    message: str,
) -> None:
    path, divide = tmp_path / "given.parquet", run_module.divide
    parquet.write_table(many(60), path, row_group_size=64)
    job = task(path, tmp_path, models / "repeat" / "1")
    if url:
        # In object storage the record that is written last stays.
        monkeypatch.setattr(Place, "write_first", Place.write)

    def divide_late(*given: Any) -> list[Part]:
        monkeypatch.setattr(run_module, "divide", divide)
        other = job._replace(**options)
        assert forecast_table(other, here, part_rows=200, workers=1).counts == (60, 0)
        (tmp_path / "out" / "_SUCCESS").unlink()
        return divide(*given)

    monkeypatch.setattr(run_module, "divide", divide_late)
    if url or options:
        with pytest.raises(BatchError, match=message if not url else "was written by another run"):
            forecast_table(job, here, part_rows=100)
        assert not (tmp_path / "out" / "_SUCCESS").exists()
    else:
        assert forecast_table(job, here, part_rows=100).counts == (60, 0)
    names = forecasts(tmp_path)["unique_id"].to_pylist()
    assert len(set(names)) == 60
    assert len(names) == 60 * options.get("horizon", 4)


def test_table_that_is_written_during_a_run(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "given.parquet"

    def rewriting(rows: int) -> Any:
        def execute(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
            found = here(work, parts)
            yield next(found)
            parquet.write_table(many(100, rows), path, row_group_size=64)
            yield from found

        return execute

    for number, (rows, message) in enumerate(
        ((9, "its files were written since the run began"), (6, "has fewer rows than when the run"))
    ):
        parquet.write_table(many(100), path, row_group_size=64)
        folder = tmp_path / str(number)
        with pytest.raises(BatchError, match=f"given.parquet: {message}"):
            forecast_table(
                task(path, folder, models / "repeat" / "1"), rewriting(rows), part_rows=100
            )
        assert not (folder / "out" / "_SUCCESS").exists()


def test_partial_files_of_a_killed_run_are_removed(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "forecasts"
    folder.mkdir(parents=True)
    (folder / ".part-00000.parquet.0a1b2c3d").touch()
    run(many(3), models / "repeat" / "1", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["part-00000.parquet"]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("repeat", {"horizon": 17}, "--horizon: expected at most 16 steps"),
        ("repeat", {"quantiles": (0.5,)}, "--quantiles: repeat has no quantiles"),
        ("repeat", {"quantiles": (0.1, 0.1)}, "--quantiles: 0.1 is given twice"),
        ("repeat", {"id_column": "name"}, "expected one column 'name'; the table has unique_id,"),
        ("repeat", {"id_column": "load"}, "column 'load': expected strings or integers, got dou"),
        ("repeat", {"time_column": "unique_id"}, "column 'unique_id': expected timestamps or da"),
        ("repeat", {"missing": "mask"}, "--missing: repeat reads no missing values"),
        ("calendar", {"given": many(3).drop_columns(["ds"])}, "a column of times is required"),
        (
            "repeat",
            {"given": pa.table({"unique_id": ["a"], "ds": ["x"], "load": ["y"]})},
            "column 'ds': expected timestamps",
        ),
        (
            "repeat",
            {"given": many(3).rename_columns(["model", "ds", "load"]), "id_column": "model"},
            "have a column 'model' of their own",
        ),
    ],
)
def test_invalid_options_and_tables_are_refused_before_writing(
    models: Path, tmp_path: Path, model: str, options: dict[str, Any], message: str
) -> None:
    options = dict(options)
    given = options.pop("given", many(3))
    with pytest.raises(BatchError, match=message):
        run(given, models / model / "1", tmp_path, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "there is no file that ends with"),
        ([many(3).slice(0, 0)], "there are no rows"),
        (
            [many(3), many(3).set_column(1, "ds", many(3)["ds"].cast("date32"))],
            r"1.parquet: its columns are .*ds date32",
        ),
        ([many(3), b"no table"], "1.parquet: Parquet magic bytes not found"),
        ([many(300), "broken off"], "0.parquet: "),
    ],
)
def test_files_that_do_not_fit_are_refused(
    models: Path, tmp_path: Path, tables: list[Any], message: str
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    for number, one in enumerate(tables):
        path = folder / f"{number}.parquet"
        if isinstance(one, bytes):
            path.write_bytes(one)
        elif isinstance(one, pa.Table):
            parquet.write_table(one, path, compression="none", use_dictionary=False)
    if "broken off" in tables:
        content = bytearray((folder / "0.parquet").read_bytes())
        content[4:40] = bytes(36)
        (folder / "0.parquet").write_bytes(content)
    with pytest.raises(BatchError, match=message):
        run(folder, models / "repeat" / "1", tmp_path)


def test_row_without_a_series_name_is_named(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.batch.tables._CELLS", 10)
    given = many(5)
    names = given["unique_id"].to_pylist()
    names[33] = None
    given = given.set_column(0, "unique_id", pa.array(names))
    with pytest.raises(BatchError, match=r"row 33 \(from 0\): the series name is missing"):
        run(given, models / "repeat" / "1", tmp_path)


def test_forecasts_that_lie_among_the_tables_are_refused(models: Path, tmp_path: Path) -> None:
    parquet.write_table(many(3), tmp_path / "given.parquet")
    (tmp_path / "link").symlink_to(tmp_path)
    for target in (tmp_path / "out", tmp_path, tmp_path / "link" / "out"):
        job = Task(f"{tmp_path}/", str(target), models / "repeat" / "1", device="cpu")
        with pytest.raises(BatchError, match="is inside the input"):
            forecast_table(job, here)


def test_relative_paths_resolve_from_other_folders(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parquet.write_table(many(3), "given.parquet")
    job = Task("given.parquet", "out", models / "repeat" / "1", device="cpu")

    def elsewhere(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        assert str(work.table.place) == f"{tmp_path}/given.parquet"
        assert str(work.target) == f"{tmp_path}/out"
        yield from here(work, parts)

    forecast_table(job, elsewhere)


def test_missing_parts_are_named(models: Path, tmp_path: Path) -> None:
    parquet.write_table(many(30), tmp_path / "given.parquet", row_group_size=64)
    job = task(tmp_path / "given.parquet", tmp_path, models / "repeat" / "1")

    def lost(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        for done in here(work, parts):
            if done.part == 1:
                (tmp_path / "out" / "forecasts" / parts[1].file).unlink()
            yield done

    with pytest.raises(BatchError, match=r"part-00001.parquet: is missing although a worker"):
        forecast_table(job, lost, part_rows=100)
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert forecast_table(job, here, part_rows=100).counts == (30, 0)


def test_endings_in_capitals_and_names_of_files(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    parquet.write_table(many(3), folder / "A.PARQUET")
    parquet.write_table(table({"short": wave(0, 3)}), folder / "b.parquet")
    assert run(folder, models / "repeat" / "1", tmp_path).counts == (3, 1)
    assert rejected(tmp_path)["short"]["file"] == "b.parquet"
    path = tmp_path / "C.CSV"
    csv.write_csv(table({"short": wave(0, 3)}), path)
    assert run(path, models / "repeat" / "1", tmp_path / "one").counts == (0, 1)
    assert rejected(tmp_path / "one")["short"]["file"] == "C.CSV"


def test_columns_by_other_names(models: Path, tmp_path: Path) -> None:
    given = many(3).rename_columns(["store", "hour", "y"])
    given = given.append_column("note", pa.array(["x"] * len(given)))
    run(given, models / "repeat" / "1", tmp_path, id_column="store", time_column="hour")
    found = forecasts(tmp_path)
    assert found.column_names[:4] == ["store", "hour", "step", "forecast"]
    assert set(found["model"].to_pylist()) == {"repeat"}
    assert set(found["version"].to_pylist()) == {"1"}


def test_csv_files_zipped_or_not(models: Path, tmp_path: Path) -> None:
    given = many(40)
    names = [f"{int(name[1:]):04d}" for name in given["unique_id"].to_pylist()]
    given = given.set_column(0, "unique_id", pa.array(names))
    folder = tmp_path / "tables"
    folder.mkdir()
    csv.write_csv(given.slice(0, 100), folder / "a.csv")
    with pa.CompressedOutputStream(str(folder / "b.csv.gz"), "gzip") as file:
        csv.write_csv(given.slice(100), file)
    assert run(folder, models / "calendar" / "1", tmp_path).counts == (40, 0)
    run(given, models / "calendar" / "1", tmp_path / "other")
    text, same = (
        forecasts(each).sort_by([("unique_id", "ascending"), ("step", "ascending")])
        for each in (tmp_path, tmp_path / "other")
    )
    assert text["forecast"].to_pylist() == same["forecast"].to_pylist()
    assert text["unique_id"].to_pylist()[::4] == [f"{number:04d}" for number in range(40)]


def test_numeric_names_of_series(models: Path, tmp_path: Path) -> None:
    given = many(9).set_column(0, "unique_id", pa.array(np.repeat(np.arange(9), 8)))
    run(given, models / "repeat" / "1", tmp_path)
    found = forecasts(tmp_path)["unique_id"]
    assert found.type == pa.int64()
    assert found.to_pylist()[::4] == list(range(9))


def test_series_that_makes_a_sound_model_fail_is_rejected(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec(fails=True))
    series = {f"s{number:02d}": np.full(8, 0.5) for number in range(20)}
    series["s07"] = np.full(8, 2.0)
    assert run(table(series), bundle, tmp_path).counts == (19, 1)
    assert rejected(tmp_path)["s07"]["reason"] == "onnxruntime could not run the model"


def test_ill_conditioned_series_are_marked(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec(margin_bound=0.5))
    run(table({"a": np.full(8, 0.4), "b": np.full(8, 0.6)}), bundle, tmp_path)
    assert forecasts(tmp_path)["ill_conditioned"].to_pylist() == [True] * 4 + [False] * 4


def test_worker_stops_at_a_signal(models: Path, tmp_path: Path) -> None:
    def stopped(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
        worker = Worker(work)
        try:
            yield worker.run(parts[0], lambda: False)
        finally:
            worker.close()

    parquet.write_table(many(3), tmp_path / "given.parquet")
    job = task(tmp_path / "given.parquet", tmp_path, models / "repeat" / "1")
    with pytest.raises(BatchError, match="stopped"):
        forecast_table(job, stopped)
    assert not list((tmp_path / "out" / "forecasts").iterdir())
