"""Models in a registry, as a server's mirror reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.serving import Serving
from foretell.storage import serving
from foretell.storage.errors import StorageError
from foretell.storage.mirror import Mirror
from foretell.storage.oci.client import Blob, Client
from foretell.storage.oci.reference import parse
from foretell.storage.oci.registry import Registry
from foretell.storage.remote import open_remote
from tests.foretell.storage.oci.conftest import RegistryProgram
from tests.foretell.storage.oci.test_publish import MANIFEST, image
from tests.support.command import done, refused


def publish(bundle: Path, url: str) -> str:
    return open_remote(url).publish(bundle, name=None, version=None)


def here(mirror: Mirror) -> list[str]:
    """Complete bundles of the mirror."""
    folders = sorted(mirror.folder.glob("[!.]*/[1-9]*"))
    for folder in folders:
        checksums.check(folder, manifest.read(folder).files)
    return [str(folder.relative_to(mirror.folder)) for folder in folders]


def test_url_chooses_models_and_versions(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    sea = f"oci://{registry.address}/another/sea"
    for url in (registry.url, registry.url, sea):
        publish(bundle, url)
    digest = Client(parse(registry.url)).digest("1")
    for url, expected in (
        (registry.url, ["repeat/1", "repeat/2"]),
        (f"{registry.url}:1", ["repeat/1"]),
        (f"{registry.url}@{digest}", ["repeat/1"]),
        (f"{registry.url}:2, {sea}", ["repeat/2", "sea/1"]),
    ):
        mirror = Mirror(open_remote(url), tmp_path / "cache")
        mirror.refresh()
        assert here(mirror) == expected
        assert not mirror.failures
    for url, message in (
        (f"{registry.url}:3", "repeat:3: there is no such version in the registry"),
        (f"{registry.url}@sha256:{'0' * 64}", "404 Not Found: MANIFEST_UNKNOWN"),
        (f"{sea}s,{registry.url}s", "models/repeats: 404 Not Found: NAME_UNKNOWN"),
    ):
        with pytest.raises(StorageError, match=message):
            Mirror(open_remote(url), tmp_path / "cache").refresh()


def test_model_that_cannot_be_listed_does_not_stop_the_others(
    registry: RegistryProgram, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sea = f"oci://{registry.address}/another/sea"
    for url in (registry.url, sea):
        publish(bundle, url)
    remote = Registry(f"{registry.url},{sea}")
    serving.write(remote, "repeat", Serving(pin="1"))
    mirror = Mirror(remote, tmp_path / "cache")
    mirror.refresh()
    publish(bundle, sea)
    tags = Client.tags

    def failing(client: Client) -> list[str]:
        if "repeat" in client._base:
            raise StorageError("no answer")
        return tags(client)

    monkeypatch.setattr(Client, "tags", failing)
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "sea/1", "sea/2"]
    assert (mirror.folder / "repeat" / layout.SERVING).exists()
    assert mirror.unlisted == {"repeat": "no answer"}
    # Commands need the whole list.
    with pytest.raises(StorageError, match="no answer"):
        remote.listing()
    monkeypatch.undo()
    mirror.refresh()
    assert mirror.unlisted == {}


def test_tag_serving_of_something_else_does_not_stop_other_models(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    sea = f"oci://{registry.address}/another/sea"
    for url in (registry.url, sea):
        publish(bundle, url)
    write_tag(registry, "serving", bundle)
    mirror = Mirror(Registry(f"{registry.url},{sea}"), tmp_path / "cache")
    mirror.refresh()
    assert here(mirror) == ["sea/1"]
    assert mirror.unlisted["repeat"].startswith(f"{registry.url}:serving: ")


def test_servers_share_a_cache(
    registry: RegistryProgram, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(bundle, registry.url)
    read, original = [], Client.blob

    def blob(client: Client, wanted: Blob, place: str) -> Iterator[bytes]:
        read.append(place.rpartition("/")[2])
        return original(client, wanted, place)

    monkeypatch.setattr(Client, "blob", blob)
    one, two = (Mirror(Registry(registry.url), tmp_path / "cache") for _ in range(2))
    one.refresh()
    # Files of equal content are read once.
    assert len(read) == len({*manifest.read(bundle).files.values()}) + 1
    read.clear()
    two.refresh()
    assert read == []
    # Files that a new version has in common with an older one are not read again.
    publish(bundle, registry.url)
    two.refresh()
    assert here(two) == ["repeat/1", "repeat/2"]
    assert read == [layout.MANIFEST]


def test_tag_that_is_written_again_is_fetched_again(
    registry: RegistryProgram, bundle: Path, other: Path, tmp_path: Path
) -> None:
    publish(bundle, registry.url)
    mirror = Mirror(Registry(registry.url), tmp_path / "cache")
    mirror.refresh()
    write_tag(registry, "1", other)
    mirror.refresh()
    assert manifest.read(mirror.folder / "repeat" / "1").files == manifest.read(other).files


def write_tag(registry: RegistryProgram, tag: str, bundle: Path) -> None:
    """Write a tag that exists, which foretell refuses."""
    publish(bundle, f"{registry.url}:99")
    url = f"http://{registry.address}/v2/models/repeat/manifests"
    content = json.dumps(image(registry, "99"))
    headers = {"Content-Type": MANIFEST}
    httpx.put(f"{url}/{tag}", content=content, headers=headers).raise_for_status()


def test_pin_is_fetched_and_removed(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    publish(bundle, registry.url)
    remote = Registry(registry.url)
    mirror = Mirror(remote, tmp_path / "cache")
    mirror.refresh()
    file = mirror.folder / "repeat" / layout.SERVING
    assert not file.exists()
    for pin in ("1", None):
        serving.write(remote, "repeat", Serving(pin=pin))
        mirror.refresh()
        assert serving.read(remote, "repeat").pin == pin
        assert Serving.model_validate_json(file.read_bytes()).pin == pin


def test_url_of_one_version_takes_no_pin(registry: RegistryProgram, bundle: Path) -> None:
    """It shows neither the other versions nor the challenger, which would be lost."""
    for _ in range(2):
        publish(bundle, registry.url)
    done("challenge", "repeat@1", "--repository", registry.url)
    message = f"{registry.url}:2: the URL names one version; pins and challengers need the URL"
    for words in (["promote", "repeat@2"], ["promote", "repeat", "--newest"]):
        assert message in refused(*words, "--repository", f"{registry.url}:2")
    assert "repeat" in done("list", f"{registry.url}:2").stdout
    remote = Registry(f"{registry.url}:2")
    with pytest.raises(StorageError, match="names one version"):
        serving.write(remote, "repeat", Serving(pin="2"))
    challenger = serving.read(remote, "repeat").challenger
    assert challenger is not None
    assert challenger.version == "1"


def test_file_beside_the_manifest_is_a_layer(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    (bundle / layout.SIGNATURE).write_bytes(b"signed")
    publish(bundle, registry.url)
    mirror = Mirror(Registry(registry.url), tmp_path / "cache")
    mirror.refresh()
    assert (mirror.folder / "repeat" / "1" / layout.SIGNATURE).read_bytes() == b"signed"
