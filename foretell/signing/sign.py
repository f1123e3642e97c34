"""Signing of bundles with a private key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from model_signing import signing

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.placement import sync
from foretell.signing.contents import Contents, check_listed
from foretell.signing.errors import SigningError


class Signer:
    """Signs bundles with a private key.

    Args:
        key: File of a private key in PEM, on the curve P-256, P-384 or P-521, without a password.

    Raises:
        SigningError: the file is missing, or is not such a key.
    """

    def __init__(self, key: Path) -> None:
        try:
            self._config = signing.Config().use_elliptic_key_signer(private_key=key)
        except OSError as error:
            raise SigningError(f"{key}: {error.strerror}") from None
        # The library raises many kinds of errors, such as for a key with a password.
        except Exception as error:
            reason = " ".join(str(error).split())[:200].rstrip(" .")
            raise SigningError(
                f"{key}: cannot sign: {reason}; expected a private key in PEM, on the curve P-256, "
                "P-384 or P-521, without a password"
            ) from None

    def signature(self, name: str, content: bytes, sums: Mapping[str, str]) -> bytes:
        """Sign the content of a bundle.

        Args:
            name: Name of the bundle in the signature, for the reader.
            content: Content of its manifest.
            sums: sha256 of every other file, by name; the caller has compared them.

        Returns:
            The content of the signature's file.
        """
        self._config.set_hashing_config(Contents(content, sums))
        with TemporaryDirectory(prefix="foretell-") as folder:
            file = Path(folder) / layout.SIGNATURE
            self._config.sign(name, file)
            return file.read_bytes()


def sign(bundle: Path, key: Path) -> Path:
    """Sign a bundle, in place of an earlier signature.

    Args:
        bundle: Folder of the bundle.
        key: File of the private key.

    Returns:
        The file of the signature.

    Raises:
        BundleError: the bundle is damaged, or has files that its manifest does not list.
        SigningError: the key cannot be used.
        OSError: the folder cannot be written.
    """
    signer = Signer(key)
    content, about = manifest.read_both(bundle)
    check_listed(bundle, about.files)
    checksums.check(bundle, about.files)
    file = bundle / layout.SIGNATURE
    hidden = bundle / f".{layout.SIGNATURE}.{uuid4().hex[:8]}"
    try:
        hidden.write_bytes(signer.signature(bundle.name, content, about.files))
        sync(hidden)
        hidden.replace(file)
        sync(bundle)
    finally:
        hidden.unlink(missing_ok=True)
    return file
