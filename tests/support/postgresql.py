"""A PostgreSQL server for tests, from the system's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

_START_SECONDS = 60


def find_binaries() -> Path | None:
    """The folder of the newest installed server, if any."""
    found = Path("/usr/lib/postgresql").glob("*/bin")
    return max(found, key=lambda path: int(path.parent.name), default=None)


class Server:
    """A server in a folder of its own, on a Unix socket."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self._folder, self._binaries = folder, binaries
        # The server refuses to run as root.
        self._user = None if os.getuid() else pwd.getpwnam("postgres")
        if self._user is not None:
            shutil.chown(folder, self._user.pw_uid, self._user.pw_gid)
        options = ["-D", str(folder / "data"), "-U", "tester", "-A", "trust", "--no-sync"]
        self._run("initdb", *options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://tester@/postgres?host={self._folder}"

    def start(self) -> None:
        command = [
            *(str(self._binaries / "postgres"), "-D", str(self._folder / "data")),
            *("-c", f"unix_socket_directories={self._folder}", "-c", "listen_addresses="),
            *("-c", "fsync=off"),
        ]
        end = time.monotonic() + _START_SECONDS
        while True:
            # Right after `kill` it may end at once: processes of the one before still end.
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    command, cwd=self._folder, stderr=subprocess.DEVNULL, **self._identity
                )
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End the server without a chance to finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    @property
    def _identity(self) -> dict[str, int]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid}

    def _run(self, name: str, *options: str) -> None:
        command = [str(self._binaries / name), *options]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._identity)


@contextmanager
def postgresql() -> Iterator[Server]:
    """A running server; skips the test where none is installed."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    # Paths of sockets are short, and the server's user must be able to enter all folders.
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:
        server = Server(Path(name), binaries)
        server.start()
        try:
            yield server
        finally:
            server.kill()
