"""The signatures that commands require of the bundles that they read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import misplacement
from foretell.service.engine.signatures import SETTING, open_signers
from foretell.service.settings import read_signed_by


@contextmanager
def accepted(
    folder: Path, signed_by: Sequence[Path] = (), *, anywhere: bool = False
) -> Iterator[Path]:
    """A folder with the content of a bundle that is signed as required.

    It is the bundle's own folder if no signature is required. Otherwise it is a private copy of
    what was verified, so that later changes of the bundle have no effect.

    Args:
        folder: A bundle, or a model's folder for its newest bundle.
        signed_by: Files of public keys, of which one must have signed the bundle; if empty, the
            files of `FORETELL_SIGNED_BY`.
        anywhere: Whether a signed bundle may be in a folder of another name or version.

    Raises:
        BundleError: the bundle is damaged, or is not signed as required.
        StartError: a key cannot be used; the message names its option or variable.
    """
    folder = layout.newest(folder)
    place, files = ("--signed-by", signed_by) if signed_by else (SETTING, read_signed_by())
    signers = open_signers(files, place)
    if signers is None:
        yield folder
        return
    if not (folder / layout.MANIFEST).is_file():
        raise BundleError(
            f"{folder}: is not a bundle (no {layout.MANIFEST}); {place} accepts signed bundles only"
        )
    content, about = manifest.read_both(folder)
    signers.check(folder, content, about.files)
    if not anywhere and (reason := misplacement(folder, about)):
        raise BundleError(reason)
    with TemporaryDirectory(prefix="foretell-") as made:
        copy = Path(made, about.name, about.version)
        copy.mkdir(parents=True)
        for name, expected in about.files.items():
            checksums.copy(folder / name, copy / name, expected)
        shutil.copyfile(folder / layout.SIGNATURE, copy / layout.SIGNATURE)
        (copy / layout.MANIFEST).write_bytes(content)
        yield copy
