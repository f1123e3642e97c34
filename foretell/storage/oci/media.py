"""Media types of what is stored in registries."""

from __future__ import annotations

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
# Types of artifacts.
BUNDLE = "application/vnd.foretell.bundle.v1"
SERVING = "application/vnd.foretell.serving.v1"
# Other manifests, which are read for a message.
OTHERS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
