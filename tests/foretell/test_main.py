import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from foretell import __main__ as entry
from foretell.__main__ import main
from foretell.commands.command import Command
from foretell.data.errors import DataError
from foretell.errors import RefusedError
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, imported, run

COMMANDS = (
    *("inspect", "presets", "settings", "train", "tune", "import", "export"),
    *("verify", "backtest", "report", "list", "sign", "publish", "gc"),
    *("serve", "predict", "batch", "demo"),
    *("actuals", "accuracy", "compare", "challenge", "promote"),
)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(flag: str):
    # Each command has a description in its line.
    found = [line.split() for line in done(flag).stdout.splitlines() if re.match("  [a-z]", line)]
    assert tuple(words[0] for words in found) == COMMANDS
    assert all(len(words) > 4 for words in found)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str):
    assert done(name, "--help").stdout.startswith(f"Usage: cli {name} ")


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ("train --data=none.csv --arch=patchtst", 2, "foretell train: none.csv: No such file"),
        ("inspect {data}", 0, "240 rows"),
        ("verify {bundle}", 0, "repeat@1: verified"),
    ],
)
def test_commands_without_models_do_not_import_torch(
    tmp_path: Path, words: str, status: int, text: str
):
    data, bundle = tmp_path / "data.csv", write_bundle(tmp_path, Spec())
    rows = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{i % 24}" for i in range(240)]
    data.write_text("\n".join(["date,load", *rows]))
    given = words.format(data=data, bundle=bundle).split()
    ended, found, torch = imported(*given, libraries={"torch"})
    assert (ended, torch) == (status, set())
    assert text in found


def test_unknown_command_and_version():
    result = run("forecast")
    assert result.exit_code == 2
    assert "No such command 'forecast'" in result.stderr
    assert "version 0." in done("--version").stdout


def test_full_disk_names_the_written_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    result = run("publish", write_bundle(tmp_path / "written", Spec()), tmp_path / "models")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"foretell publish: {tmp_path / 'models'}/repeat/")
    assert result.stderr.endswith("No space left on device\n")


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("torch", "'foretell[train]'"),
        ("pandas", "foretell"),
        ("httpx", "foretell"),
        ("matplotlib.figure", "'foretell[plot]'"),
        ("onnxruntime", "'foretell[cpu]', or 'foretell[gpu]'"),
        ("uvicorn", "'foretell[cpu]', or 'foretell[gpu]'"),
        ("pvlib", "'foretell[demo]'"),
        ("tensorboard", "'foretell[tensorboard]'"),
        ("optuna", "'foretell[tune]'"),
        ("ray.data", "'foretell[ray]'"),
    ],
)
def test_library_that_is_not_installed_is_named_with_its_extra(
    module: str, needed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def missing():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(entry, "cli", missing)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"foretell: {module} is not installed; pip install {needed}\n"
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/proc/foo"), "/proc/foo: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("truncated"), "truncated"),
        (RefusedError("there is none"), "there is none"),
        (DataError("no row"), "no row"),
    ],
)
def test_expected_errors_are_one_line(error: Exception, message: str):
    def refused():
        raise error

    result = CliRunner().invoke(Command("some", callback=refused))
    assert (result.exit_code, result.stderr) == (2, f"foretell some: {message}\n")


def test_unexpected_errors_are_raised(monkeypatch: pytest.MonkeyPatch):
    def broken():
        raise error

    for error in (ValueError("a fault"), ImportError("missing")):
        assert CliRunner().invoke(Command("some", callback=broken)).exception is error
    monkeypatch.setattr(entry, "cli", broken)
    for module in ("foretell.models.layers.lost", "foretell.bundle", None):
        error = ImportError("broken", name=module)
        with pytest.raises(ImportError, match="broken"):
            main()
