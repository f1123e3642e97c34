"""`foretell promote` and `foretell challenge`, in folders and in object storage."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import httpx
import obstore
import pytest

from foretell.bundle import layout
from foretell.storage import collecting, repository
from foretell.storage.bucket import Bucket
from foretell.storage.location import Location, open_location
from foretell.storage.mirror import Mirror
from tests.foretell.storage.conftest import Proxy
from tests.support.bundles import Spec, write_bundle
from tests.support.command import cells, done, refused, run
from tests.support.process import Server
from tests.support.waiting import until


@pytest.fixture(params=["folder", "bucket"])
def models(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> str:
    """A repository with versions 1 to 3 of a model."""
    bundle = write_bundle(tmp_path / "written", Spec()).rename(tmp_path / "staging")
    models = f"{bucket}/models" if request.param == "bucket" else str(tmp_path / "models")
    for _ in range(3):
        done("publish", bundle, models)
    return models


def read(models: str) -> object:
    """The content of the model's file; None without a file."""
    path = f"repeat/{layout.SERVING}"
    try:
        if "://" in models:
            return json.loads(bytes(obstore.get(open_location(models).store, path).bytes()))
        return json.loads((Path(models) / path).read_bytes())
    except FileNotFoundError:
        return None


def roles(models: str) -> list[list[str]]:
    """The cells of version and role that `foretell list` prints."""
    return [[row[1], row[9]] for row in cells(done("list", models).stdout) if len(row) > 9]


def test_promote_moves_the_pin_and_removes_it(models: str) -> None:
    at = ("--repository", models)
    assert done("promote", "repeat@2", *at).stdout == "repeat: version 2 serves, pinned\n"
    assert read(models) == {"pin": "2"}
    assert roles(models) == [["1", ""], ["2", "pinned"], ["3", ""]]
    done("promote", "repeat@1", *at)
    assert read(models) == {"pin": "1"}
    output = done("promote", "repeat", "--newest", *at).stdout
    assert output == "repeat: version 3 serves, the newest\n"
    assert read(models) is None
    assert roles(models) == []
    done("promote", "repeat@1", FORETELL_MODELS=models)
    assert read(models) == {"pin": "1"}


def test_challenger_is_set_ended_and_promoted(models: str) -> None:
    at = ("--repository", models)
    done("promote", "repeat@1", *at)
    output = done("challenge", "repeat@3", "--share=0.25", *at).stdout
    assert output == "repeat: version 3 is the challenger, for 0.25 of the requests\n"
    assert read(models) == {"pin": "1", "challenger": {"version": "3", "share": 0.25}}
    assert roles(models) == [["1", "pinned"], ["2", ""], ["3", "challenger for 0.25"]]
    done("promote", "repeat@2", *at)
    assert read(models) == {"pin": "2", "challenger": {"version": "3", "share": 0.25}}
    done("promote", "repeat@3", *at)
    assert read(models) == {"pin": "3"}
    done("challenge", "repeat@2", *at)
    assert read(models) == {"pin": "3", "challenger": {"version": "2", "share": 0.1}}
    for words in (["repeat@2", "--share=0"], ["repeat", "--off"]):
        done("challenge", "repeat@2", *at)
        assert done("challenge", *words, *at).stdout == "repeat: there is no challenger\n"
        assert read(models) == {"pin": "3"}
    done("promote", "repeat", "--newest", *at)
    done("challenge", "repeat@2", *at)
    assert read(models) == {"challenger": {"version": "2", "share": 0.1}}


def test_newest_version_that_serves_is_no_challenger_any_more(models: str) -> None:
    at = ("--repository", models)
    done("promote", "repeat@1", *at)
    done("challenge", "repeat@3", *at)
    done("promote", "repeat", "--newest", *at)
    assert read(models) is None


@pytest.mark.parametrize("models", ["folder", "bucket"], indirect=True)
def test_wrong_names_and_versions_are_refused(models: str) -> None:
    at = ("--repository", models)
    done("promote", "repeat@2", *at)
    for words, message in (
        (["promote", "repet@1"], "there is no model repet; did you mean 'repeat'?"),
        (["promote", "repeat@9"], "repeat has no version 9 with a manifest.json, but 1, 2, 3"),
        (["promote", "repeat@x"], "version 'x': expected a whole number"),
        (["challenge", "repeat@2"], "version 2 of repeat serves now, as it is pinned"),
        (["challenge", "repeat@9"], "repeat has no version 9 with a manifest.json, but 1, 2, 3"),
        (["challenge", "sky", "--off"], "there is no model sky; there are repeat"),
    ):
        assert message in refused(*words, *at)
    for words, message in (
        (["promote", "repeat"], "give MODEL@VERSION, or MODEL with --newest"),
        (["promote", "repeat@1", "--newest"], "give MODEL@VERSION, or MODEL with --newest"),
        (["challenge", "repeat"], "give MODEL@VERSION, or MODEL with --off"),
        (["challenge", "repeat@1", "--share=2"], "2.0 is not in the range 0<=x<=1"),
    ):
        result = run(*words, *at)
        assert result.exit_code == 2
        assert message in result.stderr
    assert read(models) == {"pin": "2"}
    done("promote", "repeat", "--newest", *at)
    assert "serves now, as it is the newest" in refused("challenge", "repeat@3", *at)


def test_incomplete_version_is_refused(models: str) -> None:
    if "://" in models:
        location = open_location(models)
        for entry in repository.list_contents(location).blobs:
            obstore.delete(location.store, [f"blobs/{entry}"])
    else:
        (Path(models) / "repeat" / "2" / layout.WEIGHTS).unlink()
    message = refused("promote", "repeat@2", "--repository", models)
    assert "version 2 of repeat is incomplete, without " in message
    assert message.endswith("; other versions: 1, 3\n")
    assert read(models) is None


def test_list_names_broken_files_and_missing_versions(tmp_path: Path) -> None:
    models = write_bundle(tmp_path / "models", Spec()).parent.parent
    file = models / "repeat" / layout.SERVING
    file.write_text('{"pin": "7"}')
    assert "repeat: version 7 is pinned, and not there\n" in done("list", models).stdout
    file.write_text("{")
    assert f"{file}: Invalid JSON" in done("list", models).stdout
    assert f"{file}: Invalid JSON" in refused("promote", "repeat@1", "--repository", models)


def test_publish_and_gc_keep_the_pin_and_its_version(
    models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("promote", "repeat@1", "--repository", models)
    done("challenge", "repeat@2", "--repository", models)
    before = read(models)
    done("publish", tmp_path / "staging", models)
    assert read(models) == before
    if "://" in models:
        monkeypatch.setattr(collecting, "GRACE", timedelta(seconds=-10))
        for _ in range(2):
            done("gc", models)
        assert read(models) == before
        location = open_location(models)
        blobs = repository.list_contents(location).blobs
        for version in ("1", "2"):
            files = repository.read_manifest(location, "repeat", version).files
            assert blobs.keys() >= {*files.values()}


def test_mirror_holds_the_file_before_versions_are_chosen(
    bucket: str, proxy: Proxy, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "written", Spec()).rename(tmp_path / "staging")
    location: Location = open_location(f"{bucket}/models")
    for _ in range(2):
        repository.publish(bundle, location)
    done("promote", "repeat@1", "--repository", location.url)
    mirror = Mirror(Bucket(location), tmp_path / "cache", lambda name, _: chosen(name))
    file = mirror.folder / "repeat" / layout.SERVING

    def chosen(name: str) -> list[str]:
        return [json.loads(file.read_bytes())["pin"]] if file.exists() else []

    mirror.refresh()
    assert [*mirror.folder.glob("repeat/[!s]*")] == [mirror.folder / "repeat" / "1"]
    proxy.requests.clear()
    mirror.refresh()
    assert not [request for request in proxy.requests if layout.SERVING in request]
    done("promote", "repeat@2", "--repository", location.url)
    mirror.refresh()
    assert json.loads(file.read_bytes()) == {"pin": "2"}
    assert (mirror.folder / "repeat" / "2").exists()
    done("promote", "repeat", "--newest", "--repository", location.url)
    mirror.refresh()
    assert not file.exists()
    done("promote", "repeat@1", "--repository", location.url)
    mirror.refresh()
    assert file.exists()
    for version in ("1", "2"):
        obstore.delete(location.store, [f"repeat/{version}/manifest.json"])
    repository.publish(bundle, location, name="other")
    mirror.refresh()
    assert not file.parent.exists()


def test_server_follows_a_promotion(models: str, tmp_path: Path) -> None:
    with Server(models, tmp_path / "log", watch_seconds=0.01, cache=tmp_path / "cache") as server:
        assert httpx.get(f"{server.url}/models").json()[0]["version"] == "3"
        done("promote", "repeat@1", "--repository", models)
        until(lambda: httpx.get(f"{server.url}/models").json()[0]["version"] == "1")
