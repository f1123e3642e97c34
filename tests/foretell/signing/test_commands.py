"""`foretell sign`, `foretell verify --signed-by` and `foretell publish --sign-with`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from foretell.__main__ import cli
from foretell.bundle import layout
from tests.foretell.signing.keys import Pair
from tests.support.bundles import Spec, write_bundle


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_sign_and_verify(bundle: Path, other: Pair, pair: Pair) -> None:
    found = run("sign", bundle.parent, "--key", other.private)
    assert found.output == f"written to {bundle / layout.SIGNATURE}\n"
    found = run("verify", bundle, "--signed-by", pair.public, "--signed-by", other.public)
    assert found.exit_code == 0, found.output
    assert f"signed: {bundle / layout.SIGNATURE}\n" in found.output
    assert "repeat@1: verified" in found.output
    found = run("verify", bundle, "--signed-by", pair.public)
    assert found.exit_code == 1
    assert "is not a signature by an accepted key" in found.output


def test_sign_and_verify_take_the_newest_version_of_a_model(bundle: Path, pair: Pair) -> None:
    write_bundle(bundle.parents[1], Spec(name="repeat", version="2"))
    assert run("sign", bundle.parent, "--key", pair.private).exit_code == 0
    found = run("verify", bundle.parent, "--signed-by", pair.public)
    assert found.exit_code == 0, found.output
    assert "repeat@2: verified" in found.output


def test_sign_refuses_files_that_no_signature_covers(bundle: Path, pair: Pair) -> None:
    (bundle / "notes.txt").write_text("")
    found = run("sign", bundle, "--key", pair.private)
    assert found.exit_code == 2
    assert f"{bundle / 'notes.txt'}: is not in the manifest; remove it" in found.output


def test_verify_with_a_report_checks_the_files(bundle: Path, pair: Pair) -> None:
    assert run("verify", bundle, "--report", "--signed-by", pair.public).exit_code == 0
    (bundle / layout.WEIGHTS).write_bytes(b"")
    found = run("verify", bundle, "--report", "--signed-by", pair.public)
    assert found.exit_code == 1
    assert "sha256 differs" in found.output


def test_key_that_cannot_be_used(bundle: Path, pair: Pair) -> None:
    found = run("sign", bundle, "--key", pair.public)
    assert found.exit_code == 2
    assert f"foretell sign: {pair.public}: cannot sign: " in found.output
    found = run("verify", bundle, "--signed-by", pair.private)
    assert found.exit_code == 2
    assert f"foretell verify: --signed-by: {pair.private}: is a private key" in found.output


def test_publish_signs(bundle: Path, other: Pair, tmp_path: Path) -> None:
    place = tmp_path / "production"
    found = run("publish", bundle, place, "--name", "sea")
    assert found.exit_code == 2
    assert "--sign-with signs it again" in found.output
    found = run("publish", bundle, place, "--name", "sea", "--sign-with", other.private)
    assert found.exit_code == 0, found.output
    found = run("verify", place / "sea" / "1", "--signed-by", other.public)
    assert found.exit_code == 0, found.output
