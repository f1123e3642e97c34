"""The private copies of bundles that commands read where signatures are required."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.batch import workers
from foretell.signing.sign import sign
from tests.foretell.batch.tables import here
from tests.foretell.signing.keys import Pair
from tests.support.bundles import Spec, write_bundle
from tests.support.command import run


def test_terminated_command_leaves_no_copy(bundle: Path, pair: Pair, tmp_path: Path) -> None:
    temporary, cases = tmp_path / "temporary", tmp_path / "cases"
    temporary.mkdir()
    # Nothing is written to it: the command waits for it while it holds the copy.
    os.mkfifo(cases)
    words = ["verify", bundle, "--reference", cases, "--signed-by", pair.public]
    with subprocess.Popen(
        [sys.executable, "-m", "foretell", *map(str, words)],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("signed: ")
        assert [*temporary.glob("foretell-*/repeat/1/weights.bin")]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize(
    "command",
    [
        "verify {bundle}",
        "predict {data} --bundle {bundle} --device cpu",
        "batch {data} {out} --model {bundle} --device cpu",
    ],
)
def test_errors_name_the_bundle_and_not_its_copy(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(workers, "run_parts", lambda work, parts, workers: here(work, parts))
    data = tmp_path / "data.csv"
    rows = [f"a,2024-01-01T{hour:02}:00:00,{hour % 7}" for hour in range(24)]
    data.write_text("\n".join(["unique_id,ds,load", *rows, ""]))
    bundle = write_bundle(tmp_path / "models", Spec(changes={"devices": ("cuda",)}))
    sign(bundle, pair.private)
    words = command.format(bundle=bundle, data=data, out=tmp_path / "out").split()
    found = run(*words, "--signed-by", pair.public)
    assert found.exit_code == (1 if words[0] == "verify" else 2), found.output
    message = found.stderr.partition(f"foretell {words[0]}: ")[2]
    assert message.startswith(f"{bundle}: ")
    assert "is for cuda alone" in message
