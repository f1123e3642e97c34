"""URLs of models in registries."""

from __future__ import annotations

import pytest

from foretell.storage.errors import StorageError
from foretell.storage.oci.reference import Reference, parse
from foretell.storage.oci.registry import Registry

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("url", "expected", "endpoint"),
    [
        (
            "oci://ghcr.io/team/models/energy",
            Reference("oci", "ghcr.io", "team/models/energy"),
            "https://ghcr.io",
        ),
        (
            "oci://registry.example:5000/energy:12/",
            Reference("oci", "registry.example:5000", "energy", "12"),
            "https://registry.example:5000",
        ),
        (
            f"oci://docker.io/team/energy@{DIGEST}",
            Reference("oci", "docker.io", "team/energy", digest=DIGEST),
            "https://registry-1.docker.io",
        ),
        (
            "oci+http://registry.svc:5000/energy",
            Reference("oci+http", "registry.svc:5000", "energy"),
            "http://registry.svc:5000",
        ),
        (
            "oci://localhost:5000/energy",
            Reference("oci", "localhost:5000", "energy"),
            "http://localhost:5000",
        ),
        ("oci://127.0.0.1/energy", Reference("oci", "127.0.0.1", "energy"), "http://127.0.0.1"),
        ("oci://[::1]:5000/a/b", Reference("oci", "[::1]:5000", "a/b"), "http://[::1]:5000"),
        # A name that begins like a local one is not local.
        (
            "oci://localhost.example/a",
            Reference("oci", "localhost.example", "a"),
            "https://localhost.example",
        ),
    ],
)
def test_references_are_read(url: str, expected: Reference, endpoint: str) -> None:
    found = parse(url)
    assert found == expected
    assert found.endpoint == endpoint
    assert str(found) == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("oci://host", "expected oci://registry/path/name"),
        ("oci:///energy", "expected oci://registry/path/name"),
        ("oci://user@host/energy", "expected oci://registry/path/name"),
        ("oci://host/energy@sha256:0a", "expected oci://registry/path/name"),
        (f"oci://host/energy:3@{DIGEST}", "expected oci://registry/path/name"),
        ("oci://host/energy@3", "expected oci://registry/path/name"),
        ("oci://host/Energy", "lower-case letters"),
        ("oci://host/a//b", "lower-case letters"),
        ("oci://host/../b", "lower-case letters"),
        ("oci://host/energy:latest", "version 'latest': expected a whole number"),
        (f"oci://host/{'a' * 65}", "1 to 64 letters"),
    ],
)
def test_wrong_references_are_refused(url: str, message: str) -> None:
    with pytest.raises(StorageError, match=message) as caught:
        parse(url)
    assert str(caught.value).startswith(f"{url}: ")


def test_two_models_of_one_name_are_refused() -> None:
    Registry("oci://host/a/sea, oci://host/b/sky")
    with pytest.raises(StorageError, match="two models have the same name"):
        Registry("oci://host/a/sea,oci://another/b/sea")
