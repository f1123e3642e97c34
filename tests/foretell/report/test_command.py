from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foretell.bundle import layout
from foretell.commands.report import command
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "models", Spec(name="bare", version="9"))
    return write_bundle(tmp_path / "models", Spec(name="bare", version="10"))


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_writes_the_page(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(bundle)
    assert (result.exit_code, result.stdout) == (0, "written to bare-10.html\n")
    assert "<title>bare@10</title>" in Path("bare-10.html").read_text("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare-10.html", "models"]


def test_of_a_models_folder_the_newest_is_taken(bundle: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(bundle.parent, f"--out={page}").exit_code == 0
    assert "<title>bare@10</title>" in page.read_text("utf-8")


def test_a_page_that_is_there_is_replaced_on_request_alone(bundle: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    result = run(bundle, f"--out={page}")
    assert result.exit_code == 2
    assert result.stderr == f"foretell report: {page}: exists already; --overwrite replaces it\n"
    assert page.read_text() == "old"
    assert run(bundle, f"--out={page}", "--overwrite").exit_code == 0
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_what_cannot_be_written_or_read(bundle: Path, tmp_path: Path) -> None:
    result = run(bundle, f"--out={tmp_path / 'nowhere' / 'page.html'}")
    assert f"there is no folder {tmp_path / 'nowhere'}" in result.stderr
    (bundle / layout.PROBES).write_bytes(b"")
    page = tmp_path / "page.html"
    result = run(bundle, f"--out={page}")
    assert (result.exit_code, page.exists()) == (2, False)
    assert result.stderr.startswith("foretell report: ")
    assert run(tmp_path, f"--out={page}").exit_code == 2
