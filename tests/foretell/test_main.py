import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from foretell import __main__ as entry
from foretell.__main__ import cli, main
from tests.support.bundles import Spec, write_bundle

ROOT = Path(entry.__file__).resolve().parent.parent
COMMANDS = (
    "inspect",
    "train",
    "presets",
    "tune",
    "import",
    "export",
    "verify",
    "backtest",
    "promote",
    "push",
    "list",
    "serve",
    "forecast",
    "infer",
    "batch",
    "explain",
    "report",
    "demo",
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "written", Spec())


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(flag: str):
    result = CliRunner().invoke(cli, [flag])
    assert result.exit_code == 0
    listed = result.stdout.split("Commands:")[1].splitlines()
    assert tuple(line.split()[0] for line in listed if line.strip()) == COMMANDS
    # Each with a line that says what it is for.
    assert all(len(line.split()) > 4 for line in listed if line.strip())


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
    assert "Commands:" in result.stdout


def test_an_unknown_command():
    result = CliRunner().invoke(cli, ["predict"])
    assert result.exit_code == 2
    assert "No such command 'predict'" in result.stderr


def test_a_copy_without_room_names_the_file_that_is_written(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    monkeypatch.setattr(sys, "argv", ["foretell", "promote", str(bundle), str(tmp_path / "models")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"foretell: {tmp_path / 'models'}/repeat/")
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
    ],
)
def test_a_fault_of_the_file_system_is_a_message(
    error: OSError,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def refused():
        raise error

    monkeypatch.setattr(entry, "cli", refused)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"foretell: {message}\n"


@pytest.mark.parametrize("module", ["foretell.models.layers.lost", "foretell.bundle", None])
def test_a_fault_of_our_own_is_no_missing_library(
    module: str | None, monkeypatch: pytest.MonkeyPatch
):
    def broken():
        raise ImportError("broken", name=module)

    monkeypatch.setattr(entry, "cli", broken)
    with pytest.raises(ImportError, match="broken"):
        main()
