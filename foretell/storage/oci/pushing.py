"""Writing a bundle to a registry."""

from __future__ import annotations

from pathlib import Path

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import MakeSignature, published
from foretell.storage.oci import artifact
from foretell.storage.oci.client import Blob, Client, MissingError
from foretell.storage.oci.packing import layer_of_file, layer_of_manifest, layer_of_signature
from foretell.storage.oci.reference import Reference


def push(
    bundle: Path,
    reference: Reference,
    client: Client,
    version: str,
    sign: MakeSignature | None = None,
) -> Reference:
    """Write a bundle; the tag appears last, so that servers see the whole bundle or nothing.

    A version is never changed: a tag with other content is an error, and one with the same content
    stays. A registry has no request that creates a tag only if it is new. If two people publish the
    same version in the same moment, the later one wins, unless the registry keeps its tags.

    Args:
        bundle: Folder of the bundle.
        reference: The model.
        client: Client of its repository.
        version: Integer version; empty for the newest plus one.
        sign: Signs the published bundle.

    Returns:
        Reference of the version.

    Raises:
        BundleError: the bundle is damaged, the version exists with other content, or a signature
            would be lost.
        StorageError: the registry cannot be read or written.
    """
    content, about = manifest.read_both(bundle)
    checksums.check_names(bundle, about.files)
    target = reference.of(version or _next(client))
    content, signature = published(bundle, content, target.name, target.version, sign)
    layers = [layer_of_file(bundle, file, about.files[file]) for file in sorted(about.files)]
    if signature is not None:
        layers.append(layer_of_signature(signature))
    files = [layer.file for layer in layers]
    layers.append(layer_of_manifest(content, target.name, target.version, files))
    blobs = [layer.blob() for layer in layers]
    named = [(layer.file, blob) for layer, blob in zip(layers, blobs, strict=True)]
    about = about.model_copy(update={"name": target.name})
    written = artifact.of_bundle(about, target.version, named)
    if _is_there(client, target, written.manifest):
        return target
    for layer, blob in zip(layers, blobs, strict=True):
        client.put_blob(blob, layer, f"{target}/{layer.file}")
    config = Blob(manifest.digest_of(written.config), len(written.config))
    client.put_blob(config, [written.config], str(target))
    # Large files take time, in which others may have published.
    if not _is_there(client, target, written.manifest):
        client.put_manifest(target.version, written.manifest)
    return target


def _next(client: Client) -> str:
    try:
        return layout.version_after(tag for tag in client.tags() if layout.VERSION.fullmatch(tag))
    except MissingError:
        # The first version makes the repository.
        return layout.version_after(())


def _is_there(client: Client, target: Reference, content: bytes) -> bool:
    """Whether the version is there with this content.

    Raises:
        BundleError: it is there with other content.
    """
    found = client.digest(target.version)
    if found is not None and found != manifest.digest_of(content):
        raise BundleError(f"{target}: exists already; bundles are never changed")
    return found is not None
