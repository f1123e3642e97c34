"""Models in registries, as servers and commands read and write them.

A model is a repository in a registry, and a version is the tag with its number. The tag `serving`
is the file that says which version serves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from foretell.bundle import layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import MakeSignature
from foretell.bundle.serving import NOTHING
from foretell.storage.errors import StorageError
from foretell.storage.oci import artifact
from foretell.storage.oci.artifact import Artifact
from foretell.storage.oci.client import Blob, Client, MissingError
from foretell.storage.oci.packing import unpack
from foretell.storage.oci.pushing import push
from foretell.storage.oci.reference import Reference, parse
from foretell.storage.remote import Version

_SERVING_TAG = "serving"
_AT_A_TIME = 4
# The largest manifest of a bundle, and the largest file beside it.
_MAX_BYTES = 64 * 1024 * 1024


class Registry:
    """Models in registries.

    Args:
        url: URLs of models, separated by commas.

    Raises:
        StorageError: a URL is invalid, or two models have the same name.
    """

    def __init__(self, url: str) -> None:
        references = [parse(one.strip()) for one in url.split(",")]
        self.url = ",".join(map(str, references))
        self._models = {each.name: (each, Client(each)) for each in references}
        if len(self._models) < len(references):
            raise StorageError(f"{url}: two models have the same name")

    def __str__(self) -> str:
        return self.url

    def of(self, name: str, rest: str = "") -> str:
        """URL of a model, or of a version or a file of it."""
        tag = _SERVING_TAG if rest == layout.SERVING else rest
        reference = self._models[name][0].url if name in self._models else self.url
        return f"{reference}:{tag}" if tag else reference

    def listing(self, *, partial: bool = False) -> RegistryListing:
        """List the tags of all models.

        A URL with a version or digest stands for this version alone.
        """
        found = RegistryListing(self._models, {}, {}, {}, partial=partial and len(self._models) > 1)
        for name in self._models:
            found.add(name)
        if found.failures.keys() == self._models.keys():
            raise StorageError("; ".join(found.failures.values()))
        return found

    def check_whole(self) -> None:
        """Check that no URL has a version or digest."""
        for reference, _ in self._models.values():
            if reference.version or reference.digest:
                raise StorageError(
                    f"{reference}: the URL names one version; pins and challengers need the URL "
                    f"of the model, {reference.url}"
                )

    def read_serving(self, name: str) -> bytes | None:
        """Read the file that says which version of a model serves; None without a file."""
        client, place = self._models[name][1], self.of(name, layout.SERVING)
        try:
            content = client.manifest(_SERVING_TAG)
        except MissingError:
            return None
        return b"".join(client.blob(_small(artifact.read_serving(content, place), place), place))

    def write_serving(self, name: str, content: bytes | None) -> None:
        """Write that file; None writes one that says nothing, as few registries remove a tag."""
        self.check_whole()
        client, place = self._models[name][1], self.of(name, layout.SERVING)
        content = NOTHING.document() if content is None else content
        written = artifact.of_serving(content)
        for own in (written.config, content):
            client.put_blob(Blob(manifest.digest_of(own), len(own)), [own], place)
        client.put_manifest(_SERVING_TAG, written.manifest)

    def publish(
        self,
        bundle: Path,
        *,
        name: str | None,
        version: str | None,
        sign: MakeSignature | None = None,
    ) -> str:
        """Copy a bundle into the registry, as a version of the model that the URL names."""
        if len(self._models) > 1:
            raise StorageError(f"{self.url}: expected the URL of one model to publish")
        [(reference, client)] = self._models.values()
        if reference.digest:
            raise StorageError(f"{reference}: expected a version, not a digest, to publish")
        if name not in (None, reference.name):
            raise StorageError(f"{reference}: the URL names the model, not --name {name}")
        if version is not None and reference.version not in ("", version):
            raise StorageError(f"{reference}: differs from --model-version {version}")
        return str(push(bundle, reference, client, version or reference.version, sign))


@dataclass(frozen=True)
class RegistryListing:
    """The tags of models at one time."""

    _models: Mapping[str, tuple[Reference, Client]]
    _digests: dict[Version, str | None]
    serving: dict[str, str]
    failures: dict[str, str]
    partial: bool

    def add(self, name: str) -> None:
        """List a model."""
        try:
            versions, serving = _listed(*self._models[name])
        except (StorageError, BundleError) as error:
            self._fail(name, error)
            return
        self._digests.update({(name, version): own for version, own in versions.items()})
        if serving is not None:
            self.serving[name] = serving

    def _fail(self, name: str, error: Exception) -> None:
        if not self.partial:
            raise error
        self.failures[name] = str(error)

    @property
    def versions(self) -> Collection[Version]:
        """All tags that are version numbers, by model."""
        return self._digests.keys()

    def tags(self, wanted: Iterable[Version]) -> dict[Version, str]:
        """Digests of versions, one request for each."""
        keys = list(wanted)
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            digests = pool.map(self._digest, keys)
            return {key: own for key, own in zip(keys, digests, strict=True) if own is not None}

    def _digest(self, key: Version) -> str | None:
        name, version = key
        try:
            return self._digests[key] or self._models[name][1].digest(version)
        except StorageError as error:
            self._fail(name, error)
            return None

    def open(self, key: Version, tag: str | None = None) -> RegistryVersion:
        """Read the manifest of a version in the registry."""
        (name, version), place = key, str(self._models[key[0]][0].of(key[1]))
        client = self._models[name][1]
        content = client.manifest(tag or self._digests[key] or version)
        return RegistryVersion(client, place, artifact.read_bundle(content, place))


@dataclass(frozen=True)
class RegistryVersion:
    """A version of a model in a registry."""

    _client: Client
    place: str
    _artifact: Artifact

    @property
    def at(self) -> datetime:
        """Time at which the bundle was exported."""
        return self._artifact.created

    def manifest(self) -> bytes:
        """Read the content of the bundle's manifest."""
        return b"".join(self._read(layout.MANIFEST, is_small=True))

    def beside(self, file: str) -> bytes | None:
        """Read one of `layout.BESIDE`; None if the version has no such file."""
        if file not in self._artifact.layers:
            return None
        return b"".join(self._read(file, is_small=True))

    def pieces(self, file: str, wanted: str) -> Iterator[bytes]:  # noqa: ARG002
        """Read a file that the bundle's manifest names, in pieces."""
        return self._read(file)

    def _read(self, file: str, *, is_small: bool = False) -> Iterator[bytes]:
        place = f"{self.place}/{file}"
        if (blob := self._artifact.layers.get(file)) is None:
            raise StorageError(f"{place}: the registry has no layer with this file")
        found = self._client.blob(_small(blob, place) if is_small else blob, place)
        return unpack(found, file, place)

    def missing(self, files: Mapping[str, str]) -> list[str]:
        """Names of files without a layer."""
        return [file for file in files if file not in self._artifact.layers]

    def size(self, files: Mapping[str, str]) -> int:
        """Size of the layers of the manifest and of those files, in bytes."""
        layers = self._artifact.layers
        return sum(layers[file].size for file in (layout.MANIFEST, *files) if file in layers)


def _listed(reference: Reference, client: Client) -> tuple[dict[str, str | None], str | None]:
    """Versions of a model with their known digests, and the digest of its tag `serving`."""
    if reference.digest:
        content = client.manifest(reference.digest)
        return {artifact.read_bundle(content, str(reference)).version: reference.digest}, None
    if reference.version:
        if (digest := client.digest(reference.version)) is None:
            raise MissingError(f"{reference}: there is no such version in the registry")
        return {reference.version: digest}, None
    tags = client.tags()
    versions: dict[str, str | None] = {tag: None for tag in tags if layout.VERSION.fullmatch(tag)}
    return versions, client.digest(_SERVING_TAG) if _SERVING_TAG in tags else None


def _small(blob: Blob, place: str) -> Blob:
    """Check that a blob fits into memory, and return the blob."""
    if blob.size > _MAX_BYTES:
        raise StorageError(f"{place}: {blob.size:,} bytes; at most {_MAX_BYTES:,} are read")
    return blob
