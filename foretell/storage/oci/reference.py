"""References of models in registries: `oci://registry/path/name:version`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.storage.errors import StorageError

_EXPECTED = "expected oci://registry/path/name, with :version or @sha256:digest for one version"
_URL = re.compile(
    r"(?P<scheme>oci|oci\+http)://(?P<host>(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?)/"
    r"(?P<path>[^:@?#]+)(?::(?P<version>[^@/]+))?(?:@(?P<digest>.*))?"
)
# A repository's path, by the specification.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Reference:
    """A model in a registry, or one version of it.

    Attributes:
        scheme: `oci`, or `oci+http` for a registry without TLS.
        host: Name of the registry, with its port if it has one.
        path: Path of the model's repository in the registry.
        version: The version; empty for all.
        digest: Digest of a version's manifest; empty for none.
    """

    scheme: str
    host: str
    path: str
    version: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.url}{f':{self.version}' * bool(self.version)}{self._at}"

    @property
    def _at(self) -> str:
        return f"@{self.digest}" * bool(self.digest)

    @property
    def url(self) -> str:
        """URL of the model, without a version."""
        return f"{self.scheme}://{self.host}/{self.path}"

    @property
    def name(self) -> str:
        """Name of the model: the last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def endpoint(self) -> str:
        """Address of the registry's API; plain HTTP only on this machine or on request."""
        host = "registry-1.docker.io" if self.host == "docker.io" else self.host
        plain = self.scheme == "oci+http" or _is_local(self.host)
        return f"http{'s' * (not plain)}://{host}"

    def of(self, version: str) -> Reference:
        """Reference of another version of the model."""
        return replace(self, version=version, digest="")


def parse(url: str) -> Reference:
    """Read the URL of a model.

    Raises:
        StorageError: it is not a URL of this form.
    """
    found = _URL.fullmatch(url.rstrip("/"))
    if found is None:
        raise StorageError(f"{url}: {_EXPECTED}")
    version, digest = found["version"], found["digest"]
    if not _PATH.fullmatch(found["path"]):
        raise StorageError(f"{url}: a registry's paths have lower-case letters, digits, . _ and -")
    if (version is not None and digest is not None) or (
        digest is not None and not _DIGEST.fullmatch(digest)
    ):
        raise StorageError(f"{url}: {_EXPECTED}")
    reference = Reference(found["scheme"], found["host"], found["path"], "", digest or "")
    try:
        layout.check_name(reference.name)
        return replace(reference, version=layout.check_version(version)) if version else reference
    except BundleError as error:
        raise StorageError(f"{url}: {error}") from None


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if re.search(r":[0-9]+$", host) else host
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
