from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bundle.manifest import read
from foretell.commands.export import command


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_writes_a_bundle_and_says_what_was_verified(exported: tuple[Path, Result]):
    repository, result = exported
    assert result.exit_code == 0, result.stderr
    manifest = read(repository / "small" / "1")
    assert manifest.name == "small"
    assert result.stdout.rstrip().endswith(f"written to {repository / 'small' / '1'}")
    for check in manifest.verification.checks:
        assert check.name in result.stdout
    assert "CPUExecutionProvider against torch float64" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name=../x"], "model name '../x'"),
        (["--version=latest"], "version 'latest': expected a whole number"),
        (["--version=1"], "small/1: exists already"),
    ],
)
def test_bad_names(
    checkpoint: Path, exported: tuple[Path, Result], options: list[str], message: str
):
    repository, _ = exported
    result = run(checkpoint, f"--to={repository}", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("foretell export: ")
    assert message in result.stderr
    assert [entry.name for entry in (repository / "small").iterdir()] == ["1"]


def test_a_folder_that_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / "empty", f"--to={tmp_path / 'repository'}")
    assert result.exit_code == 2
    assert "empty/config.json: No such file" in result.stderr
    assert not (tmp_path / "repository").exists()


def test_data_of_another_model(checkpoint: Path, data: Path, tmp_path: Path):
    result = run(checkpoint, f"--to={tmp_path / 'repository'}", f"--data={data}")
    assert result.exit_code == 2
    assert f"{data}: " in result.stderr
    assert "channel 0" in result.stderr
    assert not (tmp_path / "repository").exists()


def test_bad_arguments(checkpoint: Path, tmp_path: Path):
    assert "Missing option '--to'" in run(checkpoint).stderr
    assert run(tmp_path / "nowhere", f"--to={tmp_path}").exit_code == 2
