"""Real servers in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent
_PATIENCE = 60


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class Program:
    """A program in a process of its own, which is killed at the end of the block.

    Args:
        command: Starts it.
        log: A file that takes its output.
        address: Pattern in the log once it serves; the first group is its address.
        options: Options of `subprocess.Popen`.
    """

    def __init__(
        self, command: Sequence[str | Path], log: Path, address: str, **options: Any
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, **options
            )
        self.address = self._wait_for(address)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait(self) -> int:
        return self.process.wait(_PATIENCE)

    def stop(self) -> int:
        """Send SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def _wait_for(self, address: str) -> str:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if found := re.search(address, self.log):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        raise AssertionError(f"it does not serve:\n{self.log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Server(Program):
    """`foretell serve` on a free port.

    Args:
        models: The repository, a folder or a URL.
        log: A file that takes its log.
        code: Python to run instead of the command's own entry point.
        program: Command that replaces `python -m foretell`.
        environment: Variables, if not those of this process.
        folder: Where it is started.
        settings: `FORETELL_` variables, in lower case.
    """

    def __init__(
        self,
        models: Path | str,
        log: Path,
        *,
        code: str = "",
        program: Sequence[str] = (sys.executable, "-m", "foretell"),
        environment: Mapping[str, str] = os.environ,
        folder: Path = ROOT,
        **settings: object,
    ) -> None:
        if code:
            program = (sys.executable, "-c", code)
        own = {f"FORETELL_{name.upper()}": str(value) for name, value in settings.items()}
        super().__init__(
            [*program, "serve", "--models", models, "--port", "0"],
            log,
            r"(http://127\.0\.0\.1:\d+)",
            cwd=folder,
            env={**environment, "FORETELL_DEVICE": "cpu", "TMPDIR": str(log.parent), **own},
        )
        self.url = self.address

    def metric(self, line: str) -> float:
        """The value of a sample, 0 if it does not exist yet."""
        text = httpx.get(f"{self.url}/metrics").text
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0
