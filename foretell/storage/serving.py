"""The pin and the challenger of a model in object storage: `<name>/serving.json`."""

from __future__ import annotations

import obstore

from foretell.bundle import layout, serving
from foretell.bundle.serving import NOTHING, Serving
from foretell.storage.location import Location


def read_content(location: Location, name: str) -> bytes | None:
    """Read the content of a model's file; None without a file.

    Raises:
        StorageError: the file cannot be read.
    """
    path = _path(name)
    with location.naming(path):
        try:
            return bytes(obstore.get(location.store, path).bytes())
        except FileNotFoundError:
            return None


def read(location: Location, name: str) -> Serving:
    """Read the pin and the challenger of a model.

    Raises:
        BundleError: the file is invalid.
        StorageError: the file cannot be read.
    """
    content = read_content(location, name)
    return NOTHING if content is None else serving.parse(content, location.of(_path(name)))


def write(location: Location, name: str, roles: Serving) -> None:
    """Write the file of a model, or remove it if it would say nothing.

    Raises:
        StorageError: the file cannot be written.
    """
    path = _path(name)
    with location.naming(path):
        if roles == NOTHING:
            obstore.delete(location.store, [path])
        else:
            obstore.put(location.store, path, roles.document())


def _path(name: str) -> str:
    return f"{name}/{layout.SERVING}"
