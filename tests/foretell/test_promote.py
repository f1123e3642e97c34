from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from foretell.bundle import layout
from foretell.commands.promote import command
from foretell.commands.verify import command as verify
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "written", Spec()).rename(tmp_path / "staging")


def test_a_staged_bundle_becomes_the_next_version(bundle: Path, tmp_path: Path):
    repository = write_bundle(tmp_path / "models", Spec(version="4")).parent.parent
    result = run(bundle, repository)
    assert (result.exit_code, result.stdout) == (0, f"written to {repository / 'repeat' / '5'}\n")
    verified = CliRunner().invoke(verify, [str(repository / "repeat" / "5")])
    assert verified.stdout.endswith("repeat@5: verified\n")
    assert "no server" not in verified.stdout


def test_what_is_refused(bundle: Path, tmp_path: Path):
    repository = tmp_path / "models"
    assert run(bundle, repository, "--name=sea", "--version=2").exit_code == 0
    (tmp_path / "empty").mkdir()
    for words, message in (
        ([bundle, repository, "--name=sea", "--version=2"], "sea/2: exists already"),
        ([bundle, repository, "--version=two"], "version 'two': expected a whole number"),
        ([tmp_path / "empty", repository], "empty/manifest.json: missing"),
    ):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("foretell promote: ")
        assert message in result.stderr
    (bundle / layout.WEIGHTS).write_bytes(b"damaged")
    assert "weights.bin: sha256 differs" in run(bundle, repository).stderr
    assert run(tmp_path / "nowhere", repository).exit_code == 2
    assert [path.name for path in repository.iterdir()] == ["sea"]


def test_a_server_that_watches_takes_it(bundle: Path, tmp_path: Path):
    repository = write_bundle(tmp_path / "models", Spec()).parent.parent
    with Server(repository, tmp_path / "log", watch_seconds=0.01) as server:
        assert run(bundle, repository).exit_code == 0
        until(lambda: httpx.get(f"{server.url}/models").json()[0]["version"] == "2")
        assert "refused" not in server.log
