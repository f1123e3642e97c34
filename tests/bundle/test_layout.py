from pathlib import Path

import pytest

from foretell.bundle import layout
from foretell.bundle.errors import BundleError


@pytest.mark.parametrize("name", ["a", "7", "patchtst_ETTh1_96.96-v2", "a" * 64])
def test_names(name: str) -> None:
    assert layout.check_name(name) == name


TRAVERSALS = ["..", "../x", "x/../y", "/etc", "x/y", "x\\y", ".hidden", "a\0", "%2e%2e"]


@pytest.mark.parametrize(
    "name", [*TRAVERSALS, "", ".", "-x", "_x", "a b", "a\n", "\na", "ä", "a" * 65, "a@1"]
)
def test_refused_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="model name"):
        layout.check_name(name)
    with pytest.raises(BundleError, match="model name"):
        layout.versions(tmp_path, name)
    with pytest.raises(BundleError, match="model name"):
        layout.next_version(tmp_path, name)


@pytest.mark.parametrize("version", ["1", "10", "999999999"])
def test_versions(version: str) -> None:
    assert layout.check_version(version) == version


@pytest.mark.parametrize(
    "version", [*TRAVERSALS, "", "0", "01", "-1", "1.0", "v1", "1\n", "1000000000", "\u0661"]
)
def test_refused_versions(version: str) -> None:
    with pytest.raises(BundleError, match="expected a whole number from 1"):
        layout.check_version(version)


def test_a_refused_name_is_shown_in_part() -> None:
    with pytest.raises(BundleError) as raised:
        layout.check_name("a" * 10_000)
    assert len(str(raised.value)) < 250


def make(repository: Path, *places: str) -> None:
    for place in places:
        folder = repository / place
        folder.mkdir(parents=True)
        (folder / layout.MANIFEST).touch()


def test_what_a_repository_holds(tmp_path: Path) -> None:
    make(tmp_path, "b/1", "b/2", "b/10", "b/9", "a/3", ".hidden/1", "c/.1.ab12", "c/latest", "d/0")
    (tmp_path / "e" / "1").mkdir(parents=True)  # no manifest
    (tmp_path / "f").touch()
    assert layout.model_names(tmp_path) == ["a", "b"]
    assert layout.versions(tmp_path, "b") == ["1", "2", "9", "10"]
    assert layout.versions(tmp_path, "c") == []
    assert layout.versions(tmp_path, "e") == []
    assert layout.versions(tmp_path, "f") == []
    assert layout.versions(tmp_path, "absent") == []


def test_next_version(tmp_path: Path) -> None:
    make(tmp_path, "b/2", "b/10")
    assert layout.next_version(tmp_path, "b") == "11"
    assert layout.next_version(tmp_path, "new") == "1"


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="absent: no such folder"):
        layout.model_names(tmp_path / "absent")
    assert layout.versions(tmp_path / "absent", "a") == []
