from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.bundle import checksums, layout
from foretell.bundle.errors import BundleError, NoRoomError
from foretell.bundle.private_copy import PrivateCopy

CONTENT = {name: name.encode() * 1000 for name in layout.FILES} | {layout.WEIGHTS: b"w" * 3_000_000}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which holds nothing else."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def sums(bundle: Path) -> dict[str, str]:
    return {name: checksums.sha256(bundle / name) for name in CONTENT}


def _write_over(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"x" * file.stat().st_size)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written over": _write_over,
    "cut off": lambda file: file.write_bytes(b""),
    "removed": Path.unlink,
}


def mapped(of: str) -> bool:
    return of in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("change", CHANGES)
def test_copy_is_unchanged_when_the_bundle_changes(bundle: Path, place: Path, change: str) -> None:
    copy = PrivateCopy(bundle, sums(bundle))
    assert mapped(str(place))
    for name in CONTENT:
        CHANGES[change](bundle / name)
    copy.rest()
    assert {name: copy.read(name) for name in CONTENT} == CONTENT
    with copy.view(layout.WEIGHTS) as view:
        assert view.readonly
        assert view == CONTENT[layout.WEIGHTS]
    copy.close()
    assert not mapped(str(place))


def test_copy_has_no_file_name(bundle: Path, place: Path) -> None:
    """The system frees an unnamed file when the process is killed."""
    copy = PrivateCopy(bundle, sums(bundle))
    assert list(place.iterdir()) == []
    copy.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_with_another_sum_is_refused(bundle: Path, place: Path, change: str) -> None:
    wanted = sums(bundle)
    CHANGES[change](bundle / layout.WEIGHTS)
    with pytest.raises(BundleError, match=r"bundle/weights\.bin: (sha256 differs|missing)"):
        PrivateCopy(bundle, wanted)
    assert not mapped(str(place))


def test_a_file_that_shrinks_while_it_is_copied_is_refused(
    bundle: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, size = sums(bundle), checksums.size

    def late(path: Path) -> int:
        found = size(path)
        path.write_bytes(b"")
        return found

    monkeypatch.setattr(checksums, "size", late)
    with pytest.raises(BundleError, match="sha256 differs"):
        PrivateCopy(bundle, wanted)


def test_a_file_without_a_sum_is_refused(bundle: Path) -> None:
    wanted = sums(bundle)
    del wanted[layout.WEIGHTS]
    with pytest.raises(BundleError, match=r"no checksum of weights\.bin"):
        PrivateCopy(bundle, wanted)


def test_full_disk_is_an_error_and_leaves_no_file(bundle: Path, place: Path) -> None:
    wanted = sums(bundle)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(NoRoomError, match=rf"bundle: cannot be copied to {place}: .*TMPDIR"):
            PrivateCopy(bundle, wanted)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not mapped(str(place))
    PrivateCopy(bundle, wanted).close()


def test_copy_without_a_folder_is_in_memory(
    bundle: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.rmdir()
    wanted = sums(bundle)
    copy = PrivateCopy(bundle, wanted)
    for name in CONTENT:
        (bundle / name).write_bytes(b"")
    copy.rest()
    assert {name: copy.read(name) for name in CONTENT} == CONTENT
    copy.close()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory")
def test_a_folder_in_memory_is_not_used(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in a memory file system would not count as memory of the process."""
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    maps = Path("/proc/self/maps")
    # This process may have other files there.
    before = maps.read_text().count("/dev/shm")
    copy = PrivateCopy(bundle, sums(bundle))
    assert maps.read_text().count("/dev/shm") == before
    assert copy.read(layout.WEIGHTS) == CONTENT[layout.WEIGHTS]
    copy.close()


def test_a_closed_copy_is_not_read(bundle: Path) -> None:
    copy = PrivateCopy(bundle, sums(bundle))
    view = copy.view(layout.WEIGHTS)
    copy.close()
    # A view can still be read.
    assert view[:1] == b"w"
    view.release()
    copy.close()
    with pytest.raises(ValueError, match="closed"):
        copy.read(layout.WEIGHTS)


def test_copy_holds_no_file_open(bundle: Path, place: Path) -> None:
    """The limit of open files does not limit the number of models."""
    wanted = sums(bundle)
    files = Path("/proc/self/fd")
    before = len([*files.iterdir()])
    copies = [PrivateCopy(bundle, wanted) for _ in range(3)]
    assert len([*files.iterdir()]) == before
    assert all(copy.read(name) == CONTENT[name] for copy in copies for name in CONTENT)
    for copy in copies:
        copy.close()
    assert not mapped(str(place))
