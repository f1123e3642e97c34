"""Commands that compute with a bundle require its signature: `--signed-by`, FORETELL_SIGNED_BY."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.util import get_temp_dir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell import signed
from foretell.batch import workers
from foretell.batch.errors import BatchError
from foretell.batch.prepare import prepare
from foretell.batch.work import Worker
from foretell.bundle.errors import BundleError
from foretell.service.errors import StartError
from foretell.signing.sign import sign
from foretell.verification import reference
from tests.foretell.batch.tables import here, task
from tests.foretell.signing.faults import Spoil, each_fault
from tests.foretell.signing.keys import Pair
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused, run

pytestmark = [
    # Warnings within MLflow.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

COMMANDS = {
    "verify": "verify {model}",
    "verify --reference": "verify {model} --reference {cases}",
    "verify --report": "verify {model} --report",
    "predict": "predict {data} --bundle {model} --device cpu",
    "batch": "batch {data} {out} --model {model} --device cpu --time-column date",
    "backtest": "backtest {data} --model {model}",
    "report": "report {model} --out {out}",
    "triton": "export {model} --triton {out}",
    "mlflow": "export {model} --mlflow {out}",
}


@pytest.fixture
def second(tmp_path: Path, pair: Pair) -> Path:
    """A signed version 2, which is the newest one."""
    spec = Spec(name="repeat", example=12, calibrated=1)
    for version in ("1", "2"):
        made = write_bundle(tmp_path / "models", replace(spec, version=version))
        sign(made, pair.private)
    return made


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; nothing may be left in it."""
    # Its own folder is kept for the whole process; paths of sockets in it must be short.
    get_temp_dir()
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not [*folder.glob("foretell-*")]


@pytest.fixture(params=COMMANDS)
def words(
    second: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The words of each command, with a model's folder."""
    if request.param == "mlflow":
        pytest.importorskip("mlflow", reason="extra mlflow")
    monkeypatch.setattr(workers, "run_parts", lambda work, parts, workers: here(work, parts))
    data = tmp_path / "data.csv"
    times = pd.date_range("2024-01-01", periods=80, freq="h")
    noise = np.random.default_rng(0).normal(size=80)
    pd.DataFrame({"unique_id": "a", "date": times, "load": noise}).to_csv(data, index=False)
    cases = tmp_path / "cases.npz"
    reference.save({}, cases)
    places = {"model": second.parent, "data": data, "out": tmp_path / "out", "cases": cases}
    return COMMANDS[request.param].format(**places).split()


@pytest.fixture
def status(words: list[str]) -> int:
    return 1 if words[0] == "verify" else 2


def test_signed_bundle_is_accepted(words: list[str], pair: Pair, other: Pair) -> None:
    done(*words, "--signed-by", other.public, "--signed-by", pair.public)


@each_fault
def test_bundle_is_refused(
    words: list[str], status: int, second: Path, pair: Pair, other: Pair, spoil: Spoil, reason: str
) -> None:
    spoil(second, other)
    message = refused(*words, "--signed-by", pair.public, status=status)
    assert reason in message
    assert str(second) in message
    assert not (second.parents[2] / "out").exists()


def test_environment_requires_signatures(
    words: list[str], status: int, pair: Pair, other: Pair
) -> None:
    only_other = {"FORETELL_SIGNED_BY": str(other.public)}
    assert "by an accepted key" in refused(*words, status=status, **only_other)
    done(*words, FORETELL_SIGNED_BY=f"{other.public}, {pair.public}")


@pytest.mark.parametrize(
    ("variable", "keys", "reason"),
    [
        ("FORETELL_SIGNED_BY", "", "FORETELL_SIGNED_BY: is empty; name a key, or unset it"),
        ("foretell_signed_by", "", "FORETELL_SIGNED_BY: is empty; name a key, or unset it"),
        ("FORETELL_SIGNED_BY", "a,,b", "FORETELL_SIGNED_BY: expected names of files separated"),
        ("FORETELL_SIGNED_BY", "missing", "FORETELL_SIGNED_BY: missing: No such file"),
    ],
)
def test_lost_keys_are_refused(words: list[str], variable: str, keys: str, reason: str) -> None:
    assert reason in refused(*words, **{variable: keys})


def test_missing_extra_is_named(
    words: list[str], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    monkeypatch.delitem(sys.modules, "foretell.signing.verify", raising=False)
    monkeypatch.delitem(sys.modules, "foretell.signing.contents", raising=False)
    message = refused(*words, "--signed-by", pair.public)
    assert "--signed-by: model_signing is not installed; install foretell with the extra" in message


def test_command_reads_only_what_was_verified(
    words: list[str], pair: Pair, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = signed.accepted

    @contextmanager
    def then_changed(folder: Path, signed_by: Sequence[Path]) -> Iterator[Path]:
        with accepted(folder, signed_by) as copy:
            for file in second.iterdir():
                file.write_bytes(b"")
            yield copy

    monkeypatch.setattr(signed, "accepted", then_changed)
    done(*words, "--signed-by", pair.public)
    assert not any(file.stat().st_size for file in second.iterdir())


def test_file_that_changes_while_it_is_copied_is_refused(
    second: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is compared with the sums."""
    copyfile = signed.shutil.copyfile

    def changed(source: Path, target: Path) -> None:
        copyfile(source, target)
        target.write_bytes(b"other")

    monkeypatch.setattr(signed.shutil, "copyfile", changed)
    with (
        pytest.raises(BundleError, match=f"^{second}/.*: sha256 differs from the manifest"),
        signed.accepted(second, [pair.public]),
    ):
        pass


def test_option_wins_over_the_environment(second: Path, pair: Pair, other: Pair) -> None:
    variables = {"FORETELL_SIGNED_BY": str(other.public)}
    found = done("verify", second, "--signed-by", pair.public, **variables)
    assert found.stdout.startswith(f"signed: {second / 'model.sig'}\n")


def test_checkpoints_are_refused(second: Path, pair: Pair, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    data = tmp_path / "data.csv"
    data.write_text("date,load\n2024-01-01,1\n")
    for folder, reason in (
        (checkpoint, f"{checkpoint}: is not a bundle (no manifest.json); --signed-by accepts"),
        # Otherwise it would be read in place of the bundle.
        (second, f"{second / 'config.json'}: is not in the manifest"),
    ):
        (folder / "config.json").write_text("{}")
        words = ["backtest", data, "--model", folder, "--signed-by", pair.public]
        assert reason in refused(*words)
    found = run("export", checkpoint, f"--out={tmp_path / 'out'}", f"--signed-by={pair.public}")
    assert found.exit_code == 2
    assert "is not a bundle: checkpoints have no signature" in found.stderr


def test_signed_by_needs_a_bundle(second: Path, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    found = run("predict", tmp_path / "data.csv", "--signed-by", pair.public)
    assert found.exit_code == 2
    assert "--signed-by needs --bundle" in found.stderr


def test_mlflow_loads_signed_bundles_only(
    second: Path, pair: Pair, other: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyfunc = pytest.importorskip("mlflow.pyfunc", reason="extra mlflow")
    place = tmp_path / "model"
    done("export", second, "--mlflow", place, "--signed-by", pair.public)
    assert "foretell[cpu,signing]==" in (place / "requirements.txt").read_text()
    monkeypatch.setenv("FORETELL_SIGNED_BY", str(pair.public))
    model = pyfunc.load_model(str(place))
    assert len(model.predict(model.input_example)) == 4
    monkeypatch.setenv("FORETELL_SIGNED_BY", str(other.public))
    with pytest.raises(BundleError, match="is not a signature by an accepted key"):
        pyfunc.load_model(str(place))
    monkeypatch.setenv("FORETELL_SIGNED_BY", "")
    with pytest.raises(StartError, match=r"^FORETELL_SIGNED_BY: is empty"):
        pyfunc.load_model(str(place))


def test_misplaced_bundle_is_not_called_unsigned(second: Path, pair: Pair) -> None:
    moved = second.rename(second.with_name("3"))
    message = refused("verify", moved, "--signed-by", pair.public, status=1)
    assert f"{moved}: the manifest is of repeat version 2; " in message
    assert "its signature is valid, for repeat version 2 alone" in message


def test_bundle_within_a_bundle_is_not_read(second: Path) -> None:
    (second / "1").mkdir()
    (second / "1" / "manifest.json").write_text("{}")
    for folder in (second.parent, second):
        output = done("verify", folder).stdout
        assert output.endswith("repeat@2: verified\n")
        assert "signed: " not in output


def test_worker_of_a_batch_refuses_another_bundle(second: Path, tmp_path: Path) -> None:
    table = pd.DataFrame({"unique_id": ["a"], "ds": [pd.Timestamp("2024-01-01")], "load": [1.0]})
    table.to_csv(tmp_path / "data.csv", index=False)
    work, _ = prepare(task(tmp_path / "data.csv", tmp_path, second))
    Worker(work).close()
    with pytest.raises(BatchError, match=r"repeat/1: is not the bundle that the run began with"):
        Worker(replace(work, bundle=second.parent / "1"))
