"""Verification of signatures."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from model_signing import verifying

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.signing.contents import Contents, check_listed
from foretell.signing.errors import SigningError

# Signatures have a few kilobytes.
_MOST_BYTES = 1024 * 1024
_CURVES = "expected a key on the curve P-256, P-384 or P-521"


class Signers:
    """The public keys whose signatures are accepted.

    Certificates are refused: the library accepts any certificate of an authority, also one for
    another use or after its end. It may be used from several threads.

    Args:
        files: Files of public keys in PEM, at least one.

    Raises:
        SigningError: a file is missing, or is not a public key that can be used.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._verifiers = [_verifier(file) for file in files]
        # Verifiers change while they are used.
        self._lock = threading.Lock()

    def check(self, folder: Path, content: bytes, sums: Mapping[str, str]) -> None:
        """Check the signature of a bundle.

        The files are not read: the caller compares them with their checksums.

        Args:
            folder: Folder of the bundle.
            content: Content of its manifest.
            sums: sha256 of every other file, by name, from that manifest.

        Raises:
            BundleError: the bundle is not signed, the signature is not by one of the keys or of
                other files, or the folder has files besides those.
            OSError: the folder cannot be read.
        """
        signature = folder / layout.SIGNATURE
        check_listed(folder, sums)
        if not signature.is_file():
            raise BundleError(
                f"{folder}: is not signed: it has no {layout.SIGNATURE}; `foretell sign` signs it"
            )
        if signature.stat().st_size > _MOST_BYTES:
            raise BundleError(f"{signature}: is too large for a signature")
        reasons = []
        with self._lock:
            for verifier in self._verifiers:
                contents = Contents(content, sums)
                verifier.set_hashing_config(contents)
                try:
                    verifier.verify(folder, signature)
                # The library raises many kinds of errors for damaged and hostile files.
                except Exception as error:
                    if contents.differing:
                        names = ", ".join(contents.differing[:3])
                        raise BundleError(f"{signature}: signs other content of {names}") from None
                    # The library expects a key in the signature, and not a certificate.
                    without_key = isinstance(error, AttributeError)
                    reasons.append("it names no public key" if without_key else _reason(error))
                else:
                    return
        why = "; ".join(dict.fromkeys(reasons))
        raise BundleError(f"{signature}: is not a signature by an accepted key: {why}")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300].rstrip(" .")


def _verifier(file: Path) -> verifying.Config:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SigningError(f"{file}: {error.strerror}") from None
    found = {kind.decode() for kind in re.findall(rb"-----BEGIN ([A-Z ]+)-----", content)}
    if any(kind.endswith("PRIVATE KEY") for kind in found):
        raise SigningError(
            f"{file}: is a private key; give its public key, from `openssl pkey -in KEY -pubout`"
        )
    if "CERTIFICATE" in found:
        raise SigningError(
            f"{file}: is a certificate; give the signer's public key, from "
            "`openssl x509 -in CERTIFICATE -pubkey -noout`, and sign with `foretell sign`"
        )
    if "PUBLIC KEY" not in found:
        raise SigningError(f"{file}: expected a public key in PEM")
    try:
        return verifying.Config().use_elliptic_key_verifier(public_key=file)
    # A key of another kind has no curve.
    except Exception as error:
        reason = _CURVES if isinstance(error, AttributeError) else f"{_reason(error)}; {_CURVES}"
        raise SigningError(f"{file}: cannot be used: {reason}") from None
