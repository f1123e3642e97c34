"""`foretell batch --device cuda` on the stand-in: workers that are forked open their GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pyarrow import parquet

from tests.foretell.batch.tables import many
from tests.support.bundles import Spec, write_bundle
from tests.support.stand_in.log import forbidden, read
from tests.support.stand_in.machine import ROOT, Machine


def test_only_the_numbers_that_the_stand_in_does_not_compute_are_refused(
    stand_in: Machine, tmp_path: Path
) -> None:
    bundle, table = write_bundle(tmp_path / "models", Spec()), tmp_path / "table.parquet"
    parquet.write_table(many(4), table)
    command = [stand_in.python, "-m", "foretell", "batch", table, tmp_path / "out"]
    command += ["--model", bundle, "--device", "cuda"]
    environment = stand_in.environment(tmp_path / "calls")
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "the probes' forecasts on CUDAExecutionProvider differ" in done.stderr
    calls = read(tmp_path / "calls")
    assert forbidden(calls) == []
    assert any(call.name == "end-capture" for call in calls)
