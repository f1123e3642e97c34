"""The pin and the challenger of a model in a repository that is not a folder."""

from __future__ import annotations

from foretell.bundle import layout, serving
from foretell.bundle.serving import NOTHING, Serving
from foretell.storage.remote import Remote


def read(remote: Remote, name: str) -> Serving:
    """Read the pin and the challenger of a model.

    Raises:
        BundleError: the file is invalid.
        StorageError: the file cannot be read.
    """
    content = remote.read_serving(name)
    return NOTHING if content is None else serving.parse(content, remote.of(name, layout.SERVING))


def write(remote: Remote, name: str, roles: Serving) -> None:
    """Write the file of a model, or remove it if it would say nothing.

    Raises:
        StorageError: the file cannot be written.
    """
    remote.write_serving(name, None if roles == NOTHING else roles.document())
