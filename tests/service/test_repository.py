from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bundle import layout
from service.errors import (
    InvalidInputError,
    NotReadyError,
    ServiceError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from service.model import Model
from service.repository import Repository
from tests.service.bundles import Spec, write_bundle

Open = Callable[[Path], Model]


def break_bundle(folder: Path) -> None:
    (folder / layout.WEIGHTS).write_bytes(b"broken")


def test_the_newest_version_answers(open_model: Open, tmp_path: Path) -> None:
    for version in ("2", "10", "9"):
        write_bundle(tmp_path, Spec(version=version))
    repository = Repository.load(tmp_path, open_model)
    assert repository.names == ["repeat"]
    assert repository.versions("repeat") == ["2", "9", "10"]
    assert repository.find(None).version == "10"
    assert repository.find("repeat").version == "10"
    assert repository.find("repeat@9").version == "9"
    assert repository.ready


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (None, InvalidInputError, "required when several models are served: one, two"),
        ("three", UnknownModelError, "no model 'three'; served: one, two"),
        ("", UnknownModelError, "no model ''"),
        ("../one", UnknownModelError, "no model '../one'"),
        ("one/1", UnknownModelError, "no model 'one/1'"),
        ("one@2", UnknownVersionError, "one has no version '2'; served: 1"),
        ("one@", UnknownVersionError, "one has no version ''"),
        ("one@1@1", UnknownVersionError, "one has no version '1@1'"),
    ],
)
def test_what_is_not_served(
    open_model: Open,
    tmp_path: Path,
    reference: str | None,
    error: type[ServiceError],
    message: str,
) -> None:
    for name in ("one", "two"):
        write_bundle(tmp_path, Spec(name=name))
    repository = Repository.load(tmp_path, open_model)
    with pytest.raises(error, match=message) as raised:
        repository.find(reference)
    assert raised.value.param == "model"


def test_a_bad_bundle_does_not_stop_the_good_ones(open_model: Open, tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="good"))
    write_bundle(tmp_path, Spec(name="mixed"))
    break_bundle(write_bundle(tmp_path, Spec(name="mixed", version="2")))
    break_bundle(write_bundle(tmp_path, Spec(name="bad")))
    repository = Repository.load(tmp_path, open_model)
    assert repository.names == ["good", "mixed"]
    assert not repository.ready
    report = repository.report()
    assert report["good@1"] == report["mixed@1"] == "ready"
    assert "sha256 differs" in report["bad@1"]
    assert "sha256 differs" in report["mixed@2"]
    assert repository.find("mixed").version == "1"
    for reference in ("bad", "bad@1", "mixed@2"):
        with pytest.raises(NotReadyError, match="did not load"):
            repository.find(reference)


def test_nothing_to_serve(open_model: Open, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no such folder"):
        Repository.load(tmp_path / "nowhere", open_model)
    with pytest.raises(StartError, match="no bundle in it"):
        Repository.load(tmp_path, open_model)
    break_bundle(write_bundle(tmp_path, Spec()))
    with pytest.raises(StartError, match=r"(?s)could be loaded:.*weights\.bin: sha256 differs"):
        Repository.load(tmp_path, open_model)


def test_models_share_the_time_to_close(
    open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        write_bundle(tmp_path, Spec(name=name))
    given: list[float] = []
    clock = iter((100.0, 100.0, 107.0))
    monkeypatch.setattr(Model, "close", lambda _, timeout: given.append(timeout))
    repository = Repository.load(tmp_path, open_model)
    with monkeypatch.context() as patch:
        patch.setattr("service.repository.time.monotonic", lambda: next(clock))
        repository.close(5)
    assert given == [5.0, 0.0]


def test_draining_is_not_ready_and_still_answers(open_model: Open, tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec())
    repository = Repository.load(tmp_path, open_model)
    repository.drain()
    assert not repository.ready
    assert repository.report() == {"repeat@1": "draining"}
    assert repository.find("repeat").version == "1"
