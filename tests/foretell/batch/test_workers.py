"""Processes that are killed, of a run of the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

from foretell.batch import workers
from foretell.batch.errors import BatchError
from foretell.batch.output import Counts
from foretell.batch.plan import Part
from foretell.batch.work import Done
from tests.foretell.batch.tables import forecasts, many, rejected, run, table, wave
from tests.support.bundles import Spec, write_bundle
from tests.support.waiting import until

PARTS = 16


def test_run_after_a_kill_forecasts_every_series_once(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec(burn=10))
    given = pa.concat_tables([many(PARTS * 32), table({"short": wave(0, 3)})])
    path = tmp_path / "given.parquet"
    parquet.write_table(given, path, row_group_size=256)
    command = [sys.executable, "-m", "foretell", "batch", path, tmp_path / "out", "--model", bundle]
    command += ["--workers", "2", "--part-rows", "256", "--device", "cpu"]
    folder = tmp_path / "out" / "forecasts"

    def whole(least: int) -> bool:
        return folder.exists() and len(list(folder.glob("part-*"))) >= least

    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until(lambda: whole(1) or first.poll() is not None)
    about = psutil.Process(first.pid)
    # The other processes of multiprocessing forecast nothing.
    forks = [one for one in about.children() if "forkserver" in " ".join(one.cmdline())]
    children = [child for one in forks for child in one.children()]
    # Arrow keeps freed memory for a while.
    assert children[0].environ()["MIMALLOC_PURGE_DELAY"] == "10000"
    children[0].kill()
    until(lambda: whole(6) or first.poll() is not None)
    children = about.children(recursive=True)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    # No worker goes on writing.
    assert not psutil.wait_procs(children, 30)[1]
    before = len(list(folder.glob("part-*")))
    assert 6 <= before < PARTS
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{PARTS * 32:,} series forecast in {tmp_path}/out, 1 in" in done.stdout
    assert f"; {before * 32:,} of them before; " in done.stdout
    run(path, bundle, tmp_path / "other", part_rows=256)
    assert forecasts(tmp_path).equals(forecasts(tmp_path / "other"))
    assert rejected(tmp_path) == rejected(tmp_path / "other")
    assert not list((tmp_path / "out").glob("*/.part*"))


@pytest.mark.slow
def test_terminated_run_cleans_up_and_imports_nothing_of_its_folder(tmp_path: Path) -> None:
    bundle, path = write_bundle(tmp_path, Spec(burn=10)), tmp_path / "given.parquet"
    parquet.write_table(many(PARTS * 32), path, row_group_size=256)
    command = [Path(sys.executable).parent / "foretell", "batch", path, tmp_path / "out"]
    command += ["--model", bundle, "--workers", "1", "--part-rows", "256", "--device", "cpu"]
    here = tmp_path / "here"
    here.mkdir()
    (here / "pyarrow.py").write_text("raise ValueError('not this one')")
    folder = tmp_path / "out" / "forecasts"
    first = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=here, text=True)
    until(lambda: bool([*folder.glob("part-*")]) or first.poll() is not None)
    children = psutil.Process(first.pid).children(recursive=True)
    first.terminate()
    assert "the same command continues with what is left" in first.communicate(timeout=90)[1]
    assert first.returncode == 130
    assert not psutil.wait_procs(children, 30)[1]
    assert list(folder.glob("part-*"))
    assert not list(folder.glob(".part*"))


def _parts(count: int) -> list[Part]:
    return [Part(number, ()) for number in range(count)]


def test_processes_killed_repeatedly_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def die(work: Any, parts: list[Part], count: int, gpus: list[str]) -> Iterator[Done]:
        given.append([part.number for part in parts])
        if len(given) in (3, 4):
            yield Done(parts[0].number, Counts(1, 0))
        raise BrokenProcessPool

    monkeypatch.setattr(workers, "_run", die)
    work: Any = type("Work", (), {"device": "cpu"})
    found = workers.run_parts(work, _parts(4), 2)
    assert [next(found).part, next(found).part] == [0, 1]
    with pytest.raises(BatchError, match="killed 3 times in a row"):
        next(found)
    assert given == [[0, 1, 2, 3]] * 3 + [[1, 2, 3]] + [[2, 3]] * 2


def test_processes_that_do_not_start_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EOFError

    monkeypatch.setattr(workers.ProcessPoolExecutor, "submit", fail)
    work: Any = type("Work", (), {"device": "cpu"})
    with pytest.raises(BatchError, match="killed 3 times in a row"):
        next(workers.run_parts(work, _parts(4), 2))


@pytest.mark.parametrize(("platform", "method"), [("linux", "forkserver"), ("darwin", "spawn")])
def test_start_method_of_workers(
    monkeypatch: pytest.MonkeyPatch, platform: str, method: str
) -> None:
    monkeypatch.setenv("MIMALLOC_PURGE_DELAY", "5")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    assert workers.begin().get_start_method() == method
    assert os.environ["MIMALLOC_PURGE_DELAY"] == "5"
    assert "PYTHONSAFEPATH" not in os.environ


def _tell(pipe: Connection) -> None:
    pipe.send([name in sys.modules for name in ("foretell.batch.work", "onnxruntime")])


def test_forked_workers_have_their_modules_but_onnxruntime() -> None:
    context = workers.begin()
    ours, theirs = context.Pipe()
    child = context.Process(target=_tell, args=(theirs,))  # type: ignore[attr-defined]
    child.start()
    assert ours.poll(60)
    # onnxruntime and the GPUs that it finds are each worker's own.
    assert ours.recv() == [True, False]
    child.join(60)


def test_one_process_for_each_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "_GPUS", tmp_path)
    (tmp_path / "0000:01").touch()
    (tmp_path / "0000:02").touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(workers.metadata, "distribution", lambda name: name)
    assert workers.gpus_of("cpu") == []
    assert workers.gpus_of("auto") == ["0", "1"]
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert workers.gpus_of("auto") == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    assert workers.gpus_of("cuda") == ["3", "GPU-5"]
    counts = []

    def watch(work: Any, parts: list[Part], count: int, gpus: list[str]) -> Iterator[Done]:
        counts.append((count, gpus))
        yield from (Done(part.number, Counts(1, 0)) for part in parts)

    monkeypatch.setattr(workers, "_run", watch)
    work: Any = type("Work", (), {"device": "auto"})
    assert len(list(workers.run_parts(work, _parts(4), None))) == 4
    assert len(list(workers.run_parts(work, _parts(1), 3))) == 1
    assert counts == [(2, ["3", "GPU-5"]), (1, ["3", "GPU-5"])]

    def missing(name: str) -> None:
        raise workers.metadata.PackageNotFoundError

    # Without the build for GPUs the list is empty.
    monkeypatch.setattr(workers.metadata, "distribution", missing)
    assert workers.gpus_of("auto") == []
