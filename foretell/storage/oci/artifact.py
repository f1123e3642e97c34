"""Manifests in registries: of a bundle, and of the file that says which version serves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest, digest_of
from foretell.bundle.part import first_problem
from foretell.storage.oci import media
from foretell.storage.oci.client import Blob

_ANNOTATION = "org.opencontainers.image."
_TITLE, _VERSION, _CREATED = (f"{_ANNOTATION}{own}" for own in ("title", "version", "created"))
# `oras pull` writes each layer to a file with its title.
_ENDING = ".tar"


class Descriptor(BaseModel):
    """A blob that a manifest names."""

    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]
    annotations: dict[str, str] = {}

    @property
    def blob(self) -> Blob:
        """Digest and size."""
        return Blob(self.digest, self.size)


class _Fields(BaseModel):
    artifactType: str = ""  # noqa: N815 - the specification's name
    layers: list[Descriptor] = []
    annotations: dict[str, str] = {}


class Artifact(NamedTuple):
    """Content of a bundle's manifest in a registry.

    Attributes:
        layers: Layers by the name of their file.
        version: Version of the bundle.
        created: Time at which the bundle was exported.
    """

    layers: Mapping[str, Blob]
    version: str
    created: datetime


class Written(NamedTuple):
    """A manifest to write, and the blob that it needs besides the layers."""

    manifest: bytes
    config: bytes


def of_bundle(about: Manifest, version: str, layers: Sequence[tuple[str, Blob]]) -> Written:
    """The manifest of a bundle as an image; equal bundles have equal manifests.

    Args:
        about: Manifest of the bundle.
        version: Version in the registry.
        layers: Names of files, with the blobs of their layers.
    """
    created = about.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _json(
        {
            # The format demands a platform. A bundle has none, and runtimes mount any image.
            "architecture": "amd64",
            "os": "linux",
            "created": created,
            "rootfs": {"type": "layers", "diff_ids": [blob.digest for _, blob in layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": media.MANIFEST,
            "artifactType": media.BUNDLE,
            "config": _descriptor(media.CONFIG, config),
            "layers": [
                {
                    "mediaType": media.LAYER,
                    **blob._asdict(),
                    "annotations": {_TITLE: f"{file}{_ENDING}"},
                }
                for file, blob in layers
            ],
            "annotations": {_TITLE: about.name, _VERSION: version, _CREATED: created},
        }
    )
    return Written(manifest, config)


def of_serving(content: bytes) -> Written:
    """The manifest of the file that says which version serves; its layer is the file itself."""
    config = b"{}"
    layer = _descriptor("application/json", content) | {"annotations": {_TITLE: layout.SERVING}}
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": media.MANIFEST,
            "artifactType": media.SERVING,
            "config": _descriptor(media.EMPTY, config),
            "layers": [layer],
        }
    )
    return Written(manifest, config)


def read_bundle(content: bytes, place: str) -> Artifact:
    """Read the manifest of a bundle.

    Raises:
        BundleError: it is not one that `foretell publish` has written.
    """
    fields = _read(content, place, media.BUNDLE)
    layers = {
        title.removesuffix(_ENDING): layer.blob
        for layer in fields.layers
        if (title := layer.annotations.get(_TITLE, "")).endswith(_ENDING)
    }
    version = fields.annotations.get(_VERSION, "")
    try:
        created = datetime.fromisoformat(fields.annotations.get(_CREATED, ""))
    except ValueError:
        raise BundleError(f"{place}: no time of creation") from None
    if layout.MANIFEST not in layers:
        raise BundleError(f"{place}: no layer with {layout.MANIFEST}")
    return Artifact(layers, layout.check_version(version), created)


def read_serving(content: bytes, place: str) -> Blob:
    """Read the manifest of the file that says which version serves.

    Raises:
        BundleError: it is not one that `foretell promote` has written.
    """
    fields = _read(content, place, media.SERVING)
    if not fields.layers:
        raise BundleError(f"{place}: no layer with {layout.SERVING}")
    return fields.layers[0].blob


def _read(content: bytes, place: str, kind: str) -> _Fields:
    try:
        fields = _Fields.model_validate_json(content)
    except ValidationError as error:
        field, reason = first_problem(error)
        raise BundleError(f"{place}: {field or 'manifest'}: {reason}") from None
    if fields.artifactType != kind:
        found = fields.artifactType or "an image"
        raise BundleError(f"{place}: not a bundle of foretell, but {found[:80]}")
    return fields


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
