"""The served versions at a moment, and the bundles of their folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.service.engine.messages import without_folder
from foretell.service.engine.registry import (
    LOADING,
    Registry,
    VersionState,
    public_reason,
)
from foretell.service.engine.store import ModelStore
from foretell.service.errors import (
    InvalidInputError,
    NotReadyError,
    ServiceError,
    UnknownModelError,
    UnknownVersionError,
)
from tests.service.served import Served, place


def registry(pins: dict[str, str] | None = None, **slots: VersionState) -> Registry:
    """A registry of states by `name_version`."""
    made = Registry(pins=pins or {})
    for key, slot in slots.items():
        made = made.with_version(*key.split("_"), slot)
    return made


def loaded(name: str = "one", version: str = "1", failure: str | None = None) -> VersionState:
    model = Served(Path(name, version))
    model.failure = failure
    return VersionState(model, wanted=True)


REFUSED = VersionState(refused="sha256 differs", wanted=True)


def test_failure_of_an_entry_is_read_once() -> None:
    class Recovering(Served):
        reasons = iter(["probes differ", None, None])

        @property
        def failure(self) -> str | None:
            return next(self.reasons)

        @failure.setter
        def failure(self, _: str | None) -> None:
            """Ignored."""

    found = registry(one_1=VersionState(Recovering(Path("one/1")), wanted=True))
    assert found.report == {"one@1": "probes differ"}
    assert replace(found).report == {"one@1": "ready"}


def test_public_reasons_hide_error_texts() -> None:
    pinned = registry({"two": "3"}, one_1=loaded(), one_2=REFUSED, one_3=VersionState())
    failed = pinned.with_version("one", "4", loaded(failure="CUDA failure 719"))
    report = failed.report
    for key in ("one@2", "one@4"):
        assert public_reason(report.pop(key)) == "unavailable; the log says why"
    assert set(report.values()) == {"ready", "not loaded", "pinned, and not loaded"}
    for reason in (*report.values(), "draining", "loading", "unloading", LOADING, ""):
        assert public_reason(reason) == reason


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (None, InvalidInputError, "required when several models are served: one, two"),
        ("three", UnknownModelError, r"no model 'three'; served \(GET /models\): one, two"),
        ("", UnknownModelError, "no model ''"),
        ("../one", UnknownModelError, "no model '../one'"),
        ("one/1", UnknownModelError, "no model 'one/1'"),
        ("one@2", UnknownVersionError, "one has no version '2'; served: 1"),
        ("one@", UnknownVersionError, "one has no version ''"),
        ("one@1@1", UnknownVersionError, "one has no version '1@1'"),
        ("two@2", NotReadyError, "two@2 is not loaded; /readyz says why"),
    ],
)
def test_find_refuses_unserved_models(
    reference: str | None, error: type[ServiceError], message: str
) -> None:
    served = registry(one_1=loaded("one"), two_1=loaded("two"), two_2=REFUSED)
    with pytest.raises(error, match=message) as raised:
        served.find(reference)
    assert raised.value.param == "model"


def test_empty_registry_is_not_ready() -> None:
    with pytest.raises(NotReadyError, match="no model is loaded"):
        registry().find(None)
    assert not registry().ready


def test_snapshots_do_not_change() -> None:
    before = registry(one_1=loaded(), one_2=loaded(version="2"), two_1=loaded("two"))
    after = before.with_version("one", "2", None).with_version("two", "1", None)
    assert [(name, version) for name, version, _ in after] == [("one", "1")]
    assert [f"{model.name}@{model.version}" for model in after.defaults.values()] == ["one@1"]
    assert after.find(None).version == "1"
    with pytest.raises(UnknownModelError):
        after.find("two")
    with pytest.raises(UnknownVersionError):
        after.find("one@2")
    assert before.find("one").version == "2"
    assert before.loaded("one") == ["1", "2"]
    assert before.find("two").name == "two"
    assert not list(after.with_version("one", "1", None))


def test_store_lists_only_bundles(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("name", "version", "error", "message"),
    [
        *(
            (name, None, UnknownModelError, "no model .*; in the repository: one")
            for name in ("three", "", "..", "../one", "one/9", "x" * 300, "\0")
        ),
        *(
            ("one", version, UnknownVersionError, "no version .* of one, but 9")
            for version in ("1", "", "../9", "09", "\0")
        ),
    ],
)
def test_store_refuses_missing_names_and_versions(
    tmp_path: Path, name: str, version: str | None, error: type[ServiceError], message: str
) -> None:
    place(tmp_path, "one", "9")
    with pytest.raises(error, match=message):
        ModelStore(tmp_path).find(name, version)


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


def test_store_without_a_folder(tmp_path: Path) -> None:
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


def test_store_lists_nothing_of_an_unreadable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, "one", "1")
    monkeypatch.setattr(layout, "model_names", Mock(side_effect=PermissionError("denied")))
    assert ModelStore(tmp_path).versions() == []


@pytest.mark.parametrize("folder", ["/srv/models", "models", "one"])
def test_message_has_paths_relative_to_the_folder(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    path, full = Path(folder), Path(folder).absolute()
    message = (
        f"{path}/one/1/weights.bin: differs; [Errno 2] none: '{full}/one/1'; see {path}s/x/{path}/"
    )
    left = f"one/1/weights.bin: differs; [Errno 2] none: 'one/1'; see {path}s/x/{path}/"
    assert without_folder(message, path) == left


def test_message_has_paths_relative_to_the_working_folder(tmp_path: Path) -> None:
    message = f"one/1/a.onnx: differs; {Path.cwd()}/one/1/a.onnx is it"
    assert without_folder(message, Path()) == "one/1/a.onnx: differs; one/1/a.onnx is it"
