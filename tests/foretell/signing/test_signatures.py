"""Signatures of bundles, and their verification."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from foretell.bundle import layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import publish
from foretell.signing.errors import SigningError
from foretell.signing.sign import Signer, sign
from foretell.signing.verify import Signers
from tests.foretell.signing.keys import PEM, Pair, write_authority, write_pair
from tests.support.bundles import Spec, write_bundle


def check(bundle: Path, *files: Path) -> None:
    content, about = manifest.read_both(bundle)
    Signers(files).check(bundle, content, about.files)


def test_signature_is_accepted(bundle: Path, pair: Pair, other: Pair) -> None:
    check(bundle, pair.public)
    check(bundle, other.public, pair.public)


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_other_curves_sign(bundle: Path, tmp_path: Path, curve: ec.EllipticCurve) -> None:
    pair = write_pair(tmp_path, "long", curve)
    sign(bundle, pair.private)
    check(bundle, pair.public)


def test_signing_again_replaces_the_signature(bundle: Path, pair: Pair, other: Pair) -> None:
    sign(bundle, other.private)
    check(bundle, other.public)
    with pytest.raises(BundleError, match="is not a signature by an accepted key"):
        check(bundle, pair.public)
    assert [each.name for each in bundle.iterdir() if each.name.startswith(".")] == []


def test_unsigned_bundle_is_refused(bundle: Path, pair: Pair) -> None:
    (bundle / layout.SIGNATURE).unlink()
    with pytest.raises(BundleError, match=r"repeat/1: is not signed: it has no model\.sig"):
        check(bundle, pair.public)


def test_signature_by_another_key_is_refused(bundle: Path, other: Pair) -> None:
    with pytest.raises(BundleError, match=r"is not a signature by an accepted key: Key mismatch"):
        check(bundle, other.public)


def test_changed_manifest_is_refused(bundle: Path, pair: Pair) -> None:
    path = bundle / layout.MANIFEST
    path.write_text(path.read_text().replace('"patchtst"', '"patchtsu"'))
    with pytest.raises(BundleError, match=r"signs other content of .*manifest\.json"):
        check(bundle, pair.public)


def test_changed_checksum_is_refused(bundle: Path, pair: Pair) -> None:
    content, about = manifest.read_both(bundle)
    sums = {**about.files, layout.WEIGHTS: "ab" * 32}
    with pytest.raises(BundleError, match=r"signs other content of weights\.bin"):
        Signers([pair.public]).check(bundle, content, sums)


def test_file_that_the_signature_lacks_is_refused(bundle: Path, pair: Pair) -> None:
    content, about = manifest.read_both(bundle)
    (bundle / "more.npz").write_bytes(b"")
    sums = {**about.files, "more.npz": "ab" * 32}
    with pytest.raises(BundleError, match=r"signs other content of more\.npz"):
        Signers([pair.public]).check(bundle, content, sums)


def test_signature_of_another_model_is_refused(bundle: Path, pair: Pair, tmp_path: Path) -> None:
    another = write_bundle(tmp_path / "models", Spec(name="another"))
    shutil.copy(bundle / layout.SIGNATURE, another)
    with pytest.raises(BundleError, match=r"signs other content of .*manifest\.json"):
        check(another, pair.public)


def test_extra_file_is_refused(bundle: Path, pair: Pair) -> None:
    (bundle / ".tag").write_text("of a mirror")
    check(bundle, pair.public)
    (bundle / "extra.py").write_text("")
    with pytest.raises(BundleError, match=r"extra\.py: is not in the manifest; remove it"):
        check(bundle, pair.public)
    before = (bundle / layout.SIGNATURE).read_bytes()
    with pytest.raises(BundleError, match=r"extra\.py: is not in the manifest; remove it"):
        sign(bundle, pair.private)
    assert (bundle / layout.SIGNATURE).read_bytes() == before


def test_symbolic_links_are_accepted(bundle: Path, pair: Pair, tmp_path: Path) -> None:
    for name in (layout.WEIGHTS, layout.MANIFEST, layout.SIGNATURE):
        (bundle / name).rename(tmp_path / name)
        (bundle / name).symlink_to(tmp_path / name)
    check(bundle, pair.public)
    sign(bundle, pair.private)
    check(bundle, pair.public)


def _payload(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        fields = json.loads(content)
        change(fields)
        return json.dumps(fields).encode()

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda _: b"{}",
        lambda _: b"\xff\xfe",
        lambda _: b"[" * 100_000,
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"ecdsa", b"x").replace(b'"sig": "', b'"sig": "AA'),
        _payload(lambda fields: fields.pop("dsseEnvelope")),
        _payload(lambda fields: fields["dsseEnvelope"].update(signatures=[])),  # type: ignore[attr-defined]
        _payload(lambda fields: fields["dsseEnvelope"].update(payload="e30=")),  # type: ignore[attr-defined]
        _payload(lambda fields: fields.update(mediaType="text/plain")),
    ],
    ids=range(10),
)
def test_damaged_signature_is_refused(
    bundle: Path, pair: Pair, change: Callable[[bytes], bytes]
) -> None:
    path = bundle / layout.SIGNATURE
    before = path.read_bytes()
    path.write_bytes(change(before))
    if path.read_bytes() != before:
        with pytest.raises(BundleError, match="is not a signature by an accepted key"):
            check(bundle, pair.public)


def test_large_signature_is_refused(bundle: Path, pair: Pair) -> None:
    (bundle / layout.SIGNATURE).write_bytes(bytes(1024 * 1024 + 1))
    with pytest.raises(BundleError, match="is too large for a signature"):
        check(bundle, pair.public)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model_signing", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_signature_of_the_librarys_command_is_accepted(
    bundle: Path, pair: Pair, other: Pair
) -> None:
    path = bundle / layout.SIGNATURE
    path.unlink()
    made = run("sign", "key", bundle, "--private_key", pair.private, "--signature", path)
    assert made.returncode == 0, made.stderr
    check(bundle, pair.public)
    with pytest.raises(BundleError, match="is not a signature by an accepted key"):
        check(bundle, other.public)


def test_librarys_command_accepts_the_signature(bundle: Path, pair: Pair, other: Pair) -> None:
    path = bundle / layout.SIGNATURE
    found = run("verify", "key", bundle, "--signature", path, "--public_key", pair.public)
    assert found.returncode == 0, found.stderr
    found = run("verify", "key", bundle, "--signature", path, "--public_key", other.public)
    assert found.returncode != 0


def test_certificates_are_refused(bundle: Path, tmp_path: Path, pair: Pair) -> None:
    root, leaf, key = write_authority(tmp_path)
    for file in (root, leaf):
        with pytest.raises(SigningError, match=f"^{file}: is a certificate; .*-pubkey -noout`"):
            Signers([file])
    path = bundle / layout.SIGNATURE
    path.unlink()
    given = ("--private_key", key, "--signing_certificate", leaf, "--certificate_chain", root)
    made = run("sign", "certificate", bundle, "--signature", path, *given)
    assert made.returncode == 0, made.stderr
    with pytest.raises(BundleError, match="by an accepted key: it names no public key"):
        check(bundle, pair.public)


def test_keys_that_cannot_verify_are_refused(tmp_path: Path, pair: Pair) -> None:
    text = tmp_path / "text"
    text.write_text("no key")
    damaged = tmp_path / "damaged"
    damaged.write_text(pair.public.read_text().replace("M", "N"))
    long = rsa.generate_private_key(65537, 2048).public_key()
    of_rsa = tmp_path / "rsa"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    of_rsa.write_bytes(long.public_bytes(PEM, form))
    strange = write_pair(tmp_path, "strange", ec.SECP256K1()).public
    for file, message in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "Is a directory"),
        (text, "expected a public key in PEM"),
        (pair.private, "is a private key.*openssl pkey"),
        (damaged, "cannot be used"),
        (of_rsa, "cannot be used: expected a key on the curve"),
        (strange, "Unsupported key for curve 'secp256k1'; expected a key on the curve"),
    ):
        with pytest.raises(SigningError, match=f"^{file}: .*{message}"):
            Signers([file])


def test_keys_that_cannot_sign_are_refused(tmp_path: Path, pair: Pair) -> None:
    locked = tmp_path / "locked"
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    locked.write_bytes(key.private_bytes(PEM, form, serialization.BestAvailableEncryption(b"x")))
    for file, message in (
        (tmp_path / "missing", "No such file"),
        (pair.public, "cannot sign"),
        (locked, "without a password"),
    ):
        with pytest.raises(SigningError, match=f"^{file}: .*{message}"):
            Signer(file)


def test_damaged_bundle_is_not_signed(bundle: Path, other: Pair) -> None:
    before = (bundle / layout.SIGNATURE).read_bytes()
    (bundle / layout.WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(BundleError, match=r"weights\.bin: sha256 differs"):
        sign(bundle, other.private)
    assert (bundle / layout.SIGNATURE).read_bytes() == before


def test_publish_keeps_the_signature_of_the_same_version(
    bundle: Path, pair: Pair, tmp_path: Path
) -> None:
    copied = publish(bundle, tmp_path / "production")
    check(copied, pair.public)
    assert (copied / layout.MANIFEST).read_bytes() == (bundle / layout.MANIFEST).read_bytes()


def test_publish_refuses_to_lose_a_signature(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"signs repeat version 1, not other version 1; --sign"):
        publish(bundle, tmp_path / "production", name="other")
    publish(bundle, tmp_path / "production")
    with pytest.raises(BundleError, match=r"not repeat version 2; --sign-with signs it again, or "):
        publish(bundle, tmp_path / "production")
    assert layout.versions(tmp_path / "production", "repeat") == ["1"]


def test_publish_signs(bundle: Path, pair: Pair, other: Pair, tmp_path: Path) -> None:
    signature = Signer(other.private).signature
    copied = publish(bundle, tmp_path / "production", name="renamed", sign=signature)
    check(copied, other.public)
    with pytest.raises(BundleError, match="is not a signature by an accepted key"):
        check(copied, pair.public)
