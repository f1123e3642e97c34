"""Faults of signed bundles, and the reasons why they are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.bundle import layout
from foretell.signing.sign import sign
from tests.foretell.signing.keys import Pair

Spoil = Callable[[Path, Pair], None]


def unsign(bundle: Path, other: Pair) -> None:
    (bundle / layout.SIGNATURE).unlink()


def sign_with_another(bundle: Path, other: Pair) -> None:
    sign(bundle, other.private)


def change_weights(bundle: Path, other: Pair) -> None:
    path = bundle / layout.WEIGHTS
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def change_manifest(bundle: Path, other: Pair) -> None:
    path = bundle / layout.MANIFEST
    path.write_text(path.read_text().replace('"patchtst"', '"patchtsu"'))


def add_file(bundle: Path, other: Pair) -> None:
    (bundle / "more.bin").write_bytes(b"")


def remove_file(bundle: Path, other: Pair) -> None:
    (bundle / layout.PROBES).unlink()


def copy_signature(bundle: Path, other: Pair) -> None:
    shutil.copy(bundle.parent / "1" / layout.SIGNATURE, bundle)


def rename_another_version(bundle: Path, other: Pair) -> None:
    shutil.rmtree(bundle)
    shutil.copytree(bundle.parent / "1", bundle)


FAULTS = {
    unsign: "is not signed",
    sign_with_another: "is not a signature by an accepted key",
    change_weights: "sha256 differs from the manifest",
    change_manifest: "signs other content of manifest.json",
    add_file: "more.bin: is not in the manifest",
    remove_file: "probes.npz: missing",
    copy_signature: "signs other content of manifest.json",
    rename_another_version: "the manifest is of repeat version 1",
}
each_fault = pytest.mark.parametrize(
    ("spoil", "reason"), FAULTS.items(), ids=lambda each: getattr(each, "__name__", "")
)
