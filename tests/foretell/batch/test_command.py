from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from foretell.batch import workers
from foretell.commands.batch import command
from tests.foretell.batch.tables import forecasts, here, many


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, which the command forecasts in this process."""
    monkeypatch.setattr(workers, "run_parts", lambda work, parts, workers: here(work, parts))
    parquet.write_table(many(20), tmp_path / "given.parquet", row_group_size=64)
    return tmp_path / "given.parquet"


def invoke(path: Path, *options: object) -> Result:
    arguments = [path, path.parent / "out", "--device", "cpu", *options]
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_a_table_is_forecast(path: Path, models: Path) -> None:
    options = ("--model", models / "calibrated", "--horizon", 3, "--quantiles", "0.1,0.9")
    done = invoke(path, *options)
    assert done.exit_code == 0
    assert done.output.startswith(f"20 series forecast in {path.parent}/out; 20 in ")
    assert done.output.endswith(" series/s\n")
    found = forecasts(path.parent)
    assert found.column_names[3:6] == ["forecast", "q0.1", "q0.9"]
    assert len(found) == 60
    assert invoke(path, *options).output == (
        f"20 series forecast in {path.parent}/out; 20 of them before\n"
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--model", "nowhere"), "foretell batch: nowhere: there is no bundle"),
        (("--horizon", "99"), "foretell batch: --horizon: expected at most"),
        (("--id-column", "x"), "expected one column 'x'"),
    ],
)
def test_bad_input_ends_with_2(path: Path, models: Path, options: Any, told: str) -> None:
    done = invoke(path, "--model", models / "repeat", *options)
    assert done.exit_code == 2
    assert told in done.output


def test_a_place_that_cannot_be_written_ends_with_2(path: Path, models: Path) -> None:
    (path.parent / "out").touch()
    done = invoke(path, "--model", models / "repeat")
    assert done.exit_code == 2
    assert f"{path.parent}/out" in done.output


def test_who_interrupts_is_told_how_to_go_on(
    path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(work: Any, parts: Any, workers: int | None) -> Iterator[Any]:
        yield from here(work, parts[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "run_parts", interrupted)
    done = invoke(path, "--model", models / "repeat", "--part-rows", 64)
    assert done.exit_code == 130
    assert "the same command goes on with what is left" in done.output
