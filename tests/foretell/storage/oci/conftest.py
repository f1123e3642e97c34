from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import Program

PROGRAM = shutil.which("docker-registry")
# The password `secret`, hashed by bcrypt.
_USERS = "user:$2b$04$ND1mFSSagZl00/rl/QUtveg4pJRUi820WW6EpphunZDZhedkqhTne\n"


class RegistryProgram(Program):
    """The registry of the distribution project, on the loopback interface.

    Attributes:
        blobs: Folder with its files, `<2 digits>/<sha256>/data`.
    """

    def __init__(self, folder: Path, port: int = 0, *, with_users: bool = False) -> None:
        if PROGRAM is None:
            pytest.skip("needs docker-registry (Debian: docker-registry)")
        folder.mkdir(exist_ok=True)
        config = {
            "version": "0.1",
            "log": {"level": "info"},
            "storage": {
                "filesystem": {"rootdirectory": str(folder / "data")},
                "delete": {"enabled": True},
            },
            "http": {"addr": f"127.0.0.1:{port}"},
        }
        if with_users:
            (folder / "users").write_text(_USERS)
            config["auth"] = {"htpasswd": {"realm": "here", "path": str(folder / "users")}}
        (folder / "config.yml").write_text(json.dumps(config))
        self.blobs = folder / "data" / "docker" / "registry" / "v2" / "blobs" / "sha256"
        super().__init__(
            [PROGRAM, "serve", folder / "config.yml"],
            folder / "log",
            r"listening on (127\.0\.0\.1:\d+)",
            env={"OTEL_TRACES_EXPORTER": "none"},
        )

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def url(self) -> str:
        """URL of a model that tests publish."""
        return f"oci://{self.address}/models/repeat"

    def stored(self) -> set[str]:
        """Digests of all blobs, without their algorithm."""
        return {file.parent.name for file in self.blobs.glob("*/*/data")}

    def spoil(self, digest: str) -> None:
        """Change the middle byte of a blob on the disk."""
        own = digest.removeprefix("sha256:")
        file = self.blobs / own[:2] / own / "data"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's configuration, which is empty; a test writes into it with `log_in`."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    (tmp_path / "docker").mkdir()
    return tmp_path / "docker" / "config.json"


def log_in(config: Path, host: str, pair: str) -> None:
    """Save a login as `docker login` does."""
    auth = {"auth": b64encode(pair.encode()).decode()}
    config.write_text(json.dumps({"auths": {host: auth}}))


@pytest.fixture
def registry(tmp_path: Path, login: Path) -> Iterator[RegistryProgram]:
    with RegistryProgram(tmp_path / "registry") as program:
        yield program


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "written", Spec())


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A bundle with other weights."""
    return write_bundle(tmp_path / "other", Spec(channels=("load", "wind")))
