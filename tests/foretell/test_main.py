import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from foretell import __main__ as entry
from foretell.__main__ import cli, main
from foretell.commands.command import Command
from foretell.data.errors import DataError
from foretell.errors import RefusedError
from tests.support.bundles import Spec, write_bundle

ROOT = Path(entry.__file__).resolve().parent.parent
COMMANDS = (
    *("inspect", "presets", "settings", "train", "tune", "import", "export"),
    *("verify", "backtest", "report", "list", "publish", "gc"),
    *("serve", "predict", "batch", "demo"),
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "written", Spec())


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(flag: str):
    result = CliRunner().invoke(cli, [flag])
    assert result.exit_code == 0
    # Each with a line that says what it is for.
    lines = [line.split() for line in result.stdout.splitlines() if re.match("  [a-z]", line)]
    assert tuple(words[0] for words in lines) == COMMANDS
    assert all(len(words) > 4 for words in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: cli {name} ")


def test_help_imports_no_torch():
    code = (
        "import sys; from foretell.__main__ import cli\n"
        "cli(['--help'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "train" in result.stdout


def test_an_unknown_command():
    result = CliRunner().invoke(cli, ["forecast"])
    assert result.exit_code == 2
    assert "No such command 'forecast'" in result.stderr


def test_a_copy_without_room_names_the_file_that_is_written(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    monkeypatch.setattr(sys, "argv", ["foretell", "publish", str(bundle), str(tmp_path / "models")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"foretell publish: {tmp_path / 'models'}/repeat/")
    assert said.endswith("No space left on device\n")


def test_version():
    assert "version 0." in CliRunner().invoke(cli, ["--version"]).stdout


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
def test_a_library_that_is_not_installed(
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
def test_refusals_and_faults_of_the_file_system_are_a_line(error: Exception, message: str):
    def refused():
        raise error

    result = CliRunner().invoke(Command("some", callback=refused))
    assert (result.exit_code, result.stderr) == (2, f"foretell some: {message}\n")


@pytest.mark.parametrize("error", [ValueError("a fault"), ImportError("missing")])
def test_other_faults_are_none(error: Exception):
    def broken():
        raise error

    assert CliRunner().invoke(Command("some", callback=broken)).exception is error


@pytest.mark.parametrize("module", ["foretell.models.layers.lost", "foretell.bundle", None])
def test_a_fault_of_our_own_is_no_missing_library(
    module: str | None, monkeypatch: pytest.MonkeyPatch
):
    def broken():
        raise ImportError("broken", name=module)

    monkeypatch.setattr(entry, "cli", broken)
    with pytest.raises(ImportError, match="broken"):
        main()
