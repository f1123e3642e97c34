"""The signatures that are required of bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from foretell.service.errors import StartError

SETTING = "FORETELL_SIGNED_BY"


class Signers(Protocol):
    """The keys whose signatures are accepted."""

    def check(self, folder: Path, content: bytes, sums: Mapping[str, str]) -> None:
        """Check the signature of a bundle, given its manifest and the checksums in it.

        BundleError: the bundle is not signed by one of the keys.
        """


def open_signers(files: Sequence[Path]) -> Signers | None:
    """The keys in files, if any; StartError if one cannot be used."""
    return read_signers(files, SETTING) if files else None


def read_signers(files: Sequence[Path], place: str) -> Signers:
    """The keys in files; StartError, which names the place, if one cannot be used."""
    try:
        # Most servers require no signatures, and need none of its libraries.
        module = import_module("foretell.signing.verify")
    except ModuleNotFoundError as error:
        raise StartError(
            f"{place}: {error.name} is not installed; install foretell with the extra signing"
        ) from None
    try:
        signers: Signers = module.Signers(files)
    except module.SigningError as error:
        raise StartError(f"{place}: {error}") from None
    return signers
