"""`foretell publish` into a registry, and the commands that read one."""

from __future__ import annotations

import hashlib
import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx

from foretell.bundle import checksums, layout, manifest
from foretell.storage.oci.client import Client
from foretell.storage.oci.reference import parse
from foretell.storage.sources import find_bundle, pinned
from tests.foretell.storage.oci.conftest import RegistryProgram, log_in
from tests.support.command import done, refused

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def image(registry: RegistryProgram, tag: str, path: str = "models/repeat") -> dict[str, Any]:
    """The manifest of an image, by a client that is not foretell's."""
    url = f"http://{registry.address}/v2/{path}/manifests/{tag}"
    found: dict[str, Any] = httpx.get(url, headers={"Accept": MANIFEST}).raise_for_status().json()
    return found


def blob(registry: RegistryProgram, digest: str) -> bytes:
    url = f"http://{registry.address}/v2/models/repeat/blobs/{digest}"
    return httpx.get(url).raise_for_status().content


def layer(registry: RegistryProgram, tag: str, file: str, path: str = "models/repeat") -> str:
    """Digest of the layer of a file."""
    [found] = [
        each["digest"]
        for each in image(registry, tag, path)["layers"]
        if each["annotations"]["org.opencontainers.image.title"] == f"{file}.tar"
    ]
    return str(found)


def unpack(registry: RegistryProgram, tag: str, folder: Path) -> None:
    """Unpack the layers in their order, as containerd does."""
    for own in image(registry, tag)["layers"]:
        with tarfile.open(fileobj=BytesIO(blob(registry, own["digest"]))) as archive:
            archive.extractall(folder, filter="data")


def test_bundle_becomes_the_next_version(registry: RegistryProgram, bundle: Path) -> None:
    for words, written in (
        ([registry.url], "1"),
        ([registry.url], "2"),
        ([f"{registry.url}:10"], "10"),
        ([registry.url, "--model-version=12", "--name=repeat"], "12"),
        ([registry.url], "13"),
    ):
        output = done("publish", bundle, *words).stdout
        assert output == f"written to {registry.url}:{written}\n"
    rows = [line.split("│") for line in done("list", registry.url).stdout.splitlines()]
    versions = [row[2].strip() for row in rows if len(row) > 2]
    assert versions == ["1", "2", "10", "12", "13"]
    assert [row[1].strip() for row in rows if len(row) > 2] == ["repeat"] * 5


def test_equal_files_are_stored_once_and_equal_bundles_are_equal_images(
    registry: RegistryProgram, bundle: Path
) -> None:
    done("publish", bundle, f"{registry.url}:1")
    before = registry.stored()
    done("publish", bundle, f"{registry.url}:1")
    assert registry.stored() == before
    done("publish", bundle, f"{registry.url}:2")
    # Only the layer with the manifest, the image's configuration and its manifest are new.
    assert len(registry.stored() - before) == 3
    for file in layout.FILES:
        assert layer(registry, "1", file) == layer(registry, "2", file)
    # A registry of its own, so that nothing is there before.
    with RegistryProgram(registry.blobs.parents[5] / "another") as another:
        done("publish", bundle, f"{another.url}:1")
        assert another.stored() == before


def test_existing_versions_are_never_changed(
    registry: RegistryProgram, bundle: Path, other: Path
) -> None:
    done("publish", bundle, f"{registry.url}:1")
    before = image(registry, "1")
    message = refused("publish", other, f"{registry.url}:1")
    assert f"{registry.url}:1: exists already; bundles are never changed" in message
    assert image(registry, "1") == before


def test_image_is_a_repository_for_every_tool(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    done("publish", bundle, f"{registry.url}:3")
    found = image(registry, "3")
    assert found["artifactType"] == "application/vnd.foretell.bundle.v1"
    assert found["annotations"] == {
        "org.opencontainers.image.title": "repeat",
        "org.opencontainers.image.version": "3",
        "org.opencontainers.image.created": f"{manifest.read(bundle).created_at:%FT%TZ}",
    }
    config = json.loads(blob(registry, found["config"]["digest"]))
    layers = found["layers"]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [own["digest"] for own in layers]}
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    for own in layers:
        assert own["mediaType"] == "application/vnd.oci.image.layer.v1.tar"
        content = blob(registry, own["digest"])
        assert own["size"] == len(content)
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            assert {(each.mtime, each.uid, each.mode) for each in archive} == {(0, 0, 0o644)}
    unpack(registry, "3", tmp_path / "root")
    models = tmp_path / "root" / "models"
    folder = models / "repeat" / "3"
    assert layout.model_names(models) == ["repeat"]
    checksums.check(folder, manifest.read(folder).files)
    # A mount of a part of the image still has the files.
    assert (models.rename(tmp_path / "mounted") / "repeat" / "3" / layout.WEIGHTS).is_file()
    assert done("verify", tmp_path / "mounted" / "repeat" / "3").stdout.endswith(": verified\n")


def test_bundles_are_copied_and_read(
    registry: RegistryProgram, bundle: Path, other: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    for source in (bundle, other):
        done("publish", source, registry.url)
    digest = Client(parse(registry.url)).digest("1")
    newest = find_bundle(registry.url, cache)
    assert newest.name == "2"
    assert manifest.read(newest).files == manifest.read(other).files
    for text, version in (("", "2"), (":1", "1"), (f"@{digest}", "1")):
        found = find_bundle(f"{registry.url}{text}", cache)
        about = manifest.read(found)
        assert (found.name, about.name, about.version) == (version, "repeat", version)
        there = pinned(f"{registry.url}{text}", found)
        assert there == f"{registry.url}{text if digest and digest in text else f':{version}'}"
    done("publish", f"{registry.url}:1", tmp_path / "models", "--cache", cache)
    assert done("verify", f"{tmp_path}/models/repeat/1").stdout.endswith(": verified\n")


def test_promotion_and_challenge_are_kept_in_the_registry(
    registry: RegistryProgram, bundle: Path
) -> None:
    where = ("--repository", registry.url)
    for _ in range(2):
        done("publish", bundle, registry.url)
    done("promote", "repeat@1", *where)
    done("challenge", "repeat@2", "--share=0.5", *where)
    output = done("list", registry.url).stdout
    assert "pinned" in output
    assert "challenger for 0.5" in output
    done("challenge", "repeat", "--off", *where)
    done("promote", "repeat", "--newest", *where)
    assert "pinned" not in done("list", registry.url).stdout
    # The tag `serving` stays, and does not count as a version.
    assert done("publish", bundle, registry.url).stdout == f"written to {registry.url}:3\n"


def test_wrong_requests_are_refused(registry: RegistryProgram, bundle: Path) -> None:
    done("publish", bundle, f"{registry.url}:1")
    host = f"oci://{registry.address}"
    for words, message in (
        (["publish", bundle, f"{registry.url}:2", "--model-version=3"], "differs from --model-ver"),
        (["publish", bundle, registry.url, "--name=sea"], "the URL names the model, not --name"),
        (["publish", bundle, f"{host}/a/sea,{host}/a/sky"], "expected the URL of one model"),
        (["publish", bundle, f"{registry.url}@sha256:{'0' * 64}"], "expected a version, not a dig"),
        (["publish", bundle, f"{registry.url}:two"], "version 'two': expected a whole number"),
        (["list", f"{host}/models/nothing"], "models/nothing: 404 Not Found: NAME_UNKNOWN"),
        (["publish", f"{registry.url}:7", "models"], f"{registry.url}:7: there is no bundle"),
        (["gc", registry.url], "the registry itself removes what no tag names"),
    ):
        assert message in refused(*words)
    (bundle / layout.WEIGHTS).write_bytes(b"damaged")
    assert "weights.bin: sha256 differs" in refused("publish", bundle, registry.url)
    assert Client(parse(registry.url)).tags() == ["1"]


def test_other_artifacts_are_named(registry: RegistryProgram, bundle: Path) -> None:
    done("publish", bundle, f"{registry.url}:1")
    content = image(registry, "1")
    del content["artifactType"]
    httpx.put(
        f"http://{registry.address}/v2/models/repeat/manifests/2",
        content=json.dumps(content),
        headers={"Content-Type": MANIFEST},
    ).raise_for_status()
    message = f"{registry.url}:2: not a bundle of foretell, but an image"
    assert message in refused("publish", f"{registry.url}:2", "models")
    assert message in done("list", registry.url).stdout


def test_login_is_needed_and_read_from_the_configuration(
    bundle: Path, login: Path, tmp_path: Path
) -> None:
    with RegistryProgram(tmp_path / "registry", with_users=True) as registry:
        message = refused("publish", bundle, registry.url)
        assert f"unauthorized; run `docker login {registry.address}`" in message
        log_in(login, registry.address, "user:wrong")
        message = refused("publish", bundle, registry.url)
        assert "refuses the saved login; run `docker login" in message
        log_in(login, registry.address, "user:secret")
        done("publish", bundle, registry.url)
        assert find_bundle(registry.url, tmp_path / "cache").name == "1"


def test_layer_that_changed_in_the_registry_is_refused(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    done("publish", bundle, registry.url)
    registry.spoil(layer(registry, "1", layout.WEIGHTS))
    message = refused("publish", registry.url, tmp_path / "models", "--cache", tmp_path / "cache")
    assert f"{registry.url}:1/weights.bin: the layer in the registry differs" in message


def test_unreachable_registry_is_named(registry: RegistryProgram, bundle: Path) -> None:
    registry.stop()
    message = refused("publish", bundle, registry.url)
    assert f"{registry.url}: cannot be reached" in message


def test_digest_of_an_image_is_its_content(registry: RegistryProgram, bundle: Path) -> None:
    done("publish", bundle, registry.url)
    client = Client(parse(registry.url))
    content = client.manifest("1")
    assert client.digest("1") == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.digest("2") is None
