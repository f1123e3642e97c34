"""The signatures that commands require of the bundles that they read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import misplacement
from foretell.service.engine.signatures import SETTING, read_signers


def is_required(signed_by: Sequence[Path]) -> bool:
    """Whether bundles must be signed: keys are given, or named by `FORETELL_SIGNED_BY`."""
    # Settings are read from variables in upper and lower case.
    return bool(signed_by) or SETTING.lower() in map(str.lower, os.environ)


@contextmanager
def accepted(
    folder: Path, signed_by: Sequence[Path] = (), *, anywhere: bool = False
) -> Iterator[Path]:
    """A folder with the content of a bundle that is signed as required.

    It is the bundle's own folder if no signature is required. Otherwise it is a private copy of
    what was verified, so that later changes of the bundle have no effect. Errors within the context
    name the bundle in place of its copy.

    Args:
        folder: Folder of a bundle.
        signed_by: Files of public keys, of which one must have signed the bundle; if empty, the
            files of `FORETELL_SIGNED_BY`.
        anywhere: Whether a signed bundle may be in a folder of another name or version.

    Raises:
        BundleError: the bundle is damaged, or is not signed as required.
        StartError: a key cannot be used; the message names its option or variable.
    """
    if not is_required(signed_by):
        yield folder
        return
    # Commands that require no signature need no libraries of a server.
    from foretell.service.settings import read_signed_by

    place, files = ("--signed-by", signed_by) if signed_by else (SETTING, read_signed_by())
    signers = read_signers(files, place)
    if not (folder / layout.MANIFEST).is_file():
        raise BundleError(
            f"{folder}: is not a bundle (no {layout.MANIFEST}); {place} accepts signed bundles only"
        )
    content, about = manifest.read_both(folder)
    signers.check(folder, content, about.files)
    if not anywhere and (reason := misplacement(folder, about)):
        raise BundleError(
            f"{reason}; its signature is valid, for {about.name} version {about.version} alone"
        )
    with TemporaryDirectory(prefix="foretell-") as made:
        copy = Path(made).resolve() / about.name / about.version
        copy.mkdir(parents=True)
        for name, expected in about.files.items():
            checksums.copy(folder / name, copy / name, expected)
        shutil.copyfile(folder / layout.SIGNATURE, copy / layout.SIGNATURE)
        (copy / layout.MANIFEST).write_bytes(content)
        try:
            yield copy
        except Exception as error:
            error.args = tuple(
                part.replace(str(copy), str(folder)) if isinstance(part, str) else part
                for part in error.args
            )
            raise
