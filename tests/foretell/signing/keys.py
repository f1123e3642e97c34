"""Keys and certificates in PEM files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


class Pair(NamedTuple):
    """Files of a private key and of its public key."""

    private: Path
    public: Path


def write_pair(folder: Path, name: str, curve: ec.EllipticCurve | None = None) -> Pair:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.pub")
    pair.private.write_bytes(private_pem(key))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pair.public.write_bytes(key.public_key().public_bytes(PEM, form))
    return pair


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(PEM, form, serialization.NoEncryption())


def write_authority(folder: Path) -> tuple[Path, Path, Path]:
    """Files of an authority's certificate, and of a certificate by it with its private key."""
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = _certificate("authority", "authority", authority, authority, is_authority=True)
    leaf = _certificate("signer", "authority", own, authority, is_authority=False)
    paths = folder / "root.crt", folder / "signer.crt", folder / "signer.pem"
    contents = root.public_bytes(PEM), leaf.public_bytes(PEM), private_pem(own)
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def _certificate(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    usage = dict.fromkeys(
        (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    usage |= {"digital_signature": not is_authority, "key_cert_sign": is_authority}
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .sign(signer, hashes.SHA256())
    )
