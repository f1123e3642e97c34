from __future__ import annotations

from pathlib import Path

import pytest

from foretell.bundle.errors import BundleError
from foretell.service.engine.store import ModelStore, Policy, without_folder
from foretell.service.errors import UnknownModelError, UnknownVersionError
from foretell.service.settings import VersionChoice
from tests.service.served import place

PRESENT = ["9", "10", "2"]


@pytest.mark.parametrize(
    ("versions", "pins", "chosen"),
    [
        ("all", {}, ["10", "9", "2"]),
        ("all", {"one": "2"}, ["10", "9", "2"]),
        ("latest", {}, ["10"]),
        ("latest", {"one": "9"}, ["9"]),
        ("latest", {"one": "3"}, []),
        ("latest", {"two": "9"}, ["10"]),
    ],
)
def test_what_is_loaded(versions: VersionChoice, pins: dict[str, str], chosen: list[str]) -> None:
    assert Policy(versions, pins).choose("one", PRESENT) == chosen


def test_pinned_versions_have_no_fallback() -> None:
    assert Policy("latest").may_fall_back("one")
    assert not Policy("latest", {"one": "9"}).may_fall_back("one")
    assert not Policy("all").may_fall_back("one")


def test_what_is_there(tmp_path: Path) -> None:
    for name, version in (("two", "1"), ("one", "10"), ("one", "9"), (".hidden", "1")):
        place(tmp_path, name, version)
    for folder in ("one/.11-writing", "one/latest", "one/12", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "file").touch()
    store = ModelStore(tmp_path)
    assert store.versions() == [("one", "9"), ("one", "10"), ("two", "1")]
    assert store.find("one") == ["9", "10"]
    assert store.has("one", "9")
    assert not store.has("one", "12")


@pytest.mark.parametrize("name", ["three", "", "..", "../one", "one/9", "x" * 300, "\0"])
def test_models_that_are_not_there(tmp_path: Path, name: str) -> None:
    place(tmp_path, "one", "9")
    with pytest.raises(UnknownModelError, match=r"no model .*; in the repository: one"):
        ModelStore(tmp_path).find(name)


@pytest.mark.parametrize("version", ["1", "", "../9", "09", "\0"])
def test_versions_that_are_not_there(tmp_path: Path, version: str) -> None:
    place(tmp_path, "one", "9")
    with pytest.raises(UnknownVersionError, match=r"no version .* of one, but 9"):
        ModelStore(tmp_path).find("one", version)


def test_a_fingerprint_changes_with_the_files(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    folder = place(tmp_path, "one", "1")
    prints = [store.fingerprint("one", "1")]
    assert store.fingerprints() == {"one": {"1": prints[0]}}
    place(tmp_path, "one", "1", "evil")
    prints.append(store.fingerprint("one", "1"))
    (folder / "weights.bin").write_bytes(b"half")
    prints.append(store.fingerprint("one", "1"))
    (folder / "weights.bin").write_bytes(b"half and half")
    prints.append(store.fingerprint("one", "1"))
    assert len(set(prints)) == 4


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "nowhere")
    assert store.versions() == []
    with pytest.raises(BundleError, match="no such folder"):
        store.fingerprints()


def test_a_bundle_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1", "2", "3"):
        place(tmp_path, "one", version)
    store = ModelStore(tmp_path)
    errors = {"1": PermissionError("denied"), "2": FileNotFoundError("gone"), "3": None}

    def fail(name: str, version: str) -> str:
        if (error := errors[version]) is not None:
            raise error
        return "print"

    monkeypatch.setattr(store, "fingerprint", fail)
    assert store.fingerprints() == {"one": {"1": "denied", "3": "print"}}


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(folder: Path) -> list[str]:
        raise PermissionError("denied")

    monkeypatch.setattr("foretell.service.engine.store.layout.model_names", deny)
    assert ModelStore(tmp_path).versions() == []


@pytest.mark.parametrize("folder", ["/srv/models", "models", "one"])
def test_a_message_without_the_folder(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path, full = Path(folder), Path(folder).absolute()
    said = (
        f"{path}/one/1/weights.bin: differs; [Errno 2] none: '{full}/one/1'; see {path}s/x/{path}/"
    )
    left = f"one/1/weights.bin: differs; [Errno 2] none: 'one/1'; see {path}s/x/{path}/"
    assert without_folder(said, path) == left


def test_a_message_without_the_folder_it_was_started_in(tmp_path: Path) -> None:
    said = f"one/1/a.onnx: differs; {Path.cwd()}/one/1/a.onnx is it"
    assert without_folder(said, Path()) == "one/1/a.onnx: differs; one/1/a.onnx is it"
