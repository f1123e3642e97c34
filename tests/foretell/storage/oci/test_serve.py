"""Servers of models in registries."""

from __future__ import annotations

import time
from pathlib import Path

from tests.foretell.storage.oci.conftest import RegistryProgram
from tests.foretell.storage.oci.test_publish import layer, unpack
from tests.foretell.storage.test_serve import READ, ask
from tests.support.command import done
from tests.support.process import Server
from tests.support.waiting import until


def test_server_follows_the_registry(
    registry: RegistryProgram, bundle: Path, other: Path, tmp_path: Path
) -> None:
    """New versions, damaged ones, pins, tags that are written again, and an outage."""
    done("publish", bundle, registry.url)
    cache = {"cache": tmp_path / "cache"}
    with Server(registry.url, tmp_path / "log", watch_seconds=0.05, **cache) as server:
        assert ask(server) == "1"
        assert abs(server.metric(READ) - time.time()) < 3600
        done("publish", bundle, registry.url)
        until(lambda: ask(server) == "2")
        done("promote", "repeat@1", "--repository", registry.url)
        until(lambda: ask(server) == "1")
        done("promote", "repeat", "--newest", "--repository", registry.url)
        until(lambda: ask(server) == "2")
        # A registry keeps a layer that another repository has, with its damage.
        done("publish", other, f"oci://{registry.address}/staging/repeat:3")
        registry.spoil(layer(registry, "3", "weights.bin", "staging/repeat"))
        done("publish", other, registry.url)
        until(lambda: "refused repeat@3" in server.log)
        assert f"{registry.url}:3/weights.bin: the layer in the registry differs" in server.log
        assert ask(server) == "2"
        registry.stop()
        until(lambda: "the repository cannot be polled" in server.log)
        assert ask(server) == "2"
        assert server.stop() == 0
    # A start without the registry serves what was fetched.
    with Server(registry.url, tmp_path / "log", **cache) as server:
        assert ask(server) == "2"
        assert "serves bundles that were fetched before" in server.log


def test_server_reads_a_mounted_image(
    registry: RegistryProgram, bundle: Path, tmp_path: Path
) -> None:
    """Kubernetes mounts the image as a volume."""
    done("publish", bundle, f"{registry.url}:7")
    unpack(registry, "7", tmp_path / "volume")
    with Server(tmp_path / "volume" / "models", tmp_path / "log") as server:
        assert ask(server) == "7"
