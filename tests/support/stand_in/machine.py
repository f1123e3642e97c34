"""The environment that has the stand-in, made once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TOOL = ROOT.parent / "shared" / "tools" / "fake-cuda"
_FOLDER = ROOT / ".stand-in"
_LOCK = ROOT / ".stand-in.lock"
_CONSTRAINTS = ROOT / "constraints.txt"
_SECONDS = 600


class UnavailableError(Exception):
    """There is no stand-in; the message has the reason."""


@dataclass(frozen=True)
class Machine:
    """A machine with GPUs that compute nothing.

    Attributes:
        folder: Where it was built.
        devices: How many GPUs it has.
    """

    folder: Path
    devices: int = 1

    @property
    def python(self) -> str:
        """Its interpreter, which has onnxruntime-gpu and what a server needs."""
        return str(self.folder / "venv" / "bin" / "python")

    def environment(self, log: Path | None = None, **settings: object) -> dict[str, str]:
        """Variables for a process on it.

        Args:
            log: File with a line for each call of CUDA.
            settings: Further variables of the stand-in, such as `fail`, without their prefix.
        """
        given = {"devices": self.devices, **settings} | ({"log": log} if log else {})
        libraries = [str(self.folder / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            **os.environ,
            **{f"FAKE_CUDA_{name.upper()}": str(value) for name, value in given.items()},
            "LD_LIBRARY_PATH": ":".join(part for part in libraries if part),
        }

    def run(
        self,
        module: str,
        *arguments: object,
        log: Path | None = None,
        seconds: float = _SECONDS,
        **settings: object,
    ) -> str:
        """Output of a module there.

        Raises:
            CalledProcessError: it failed.
            TimeoutExpired: it took longer.
        """
        done = subprocess.run(
            [self.python, "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env=self.environment(log, **settings),
            stdout=subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=True,
        )
        return done.stdout


def build() -> Machine:
    """Build the machine, again if its sources have changed.

    Raises:
        UnavailableError: it cannot be made here.
    """
    script = TOOL / "build"
    if not script.exists():
        raise UnavailableError(f"{TOOL} is not there")
    if shutil.which("gcc") is None:
        raise UnavailableError("gcc, which compiles the stand-in, is not installed")
    constraints = _CONSTRAINTS.read_text()
    sources = (*sorted(TOOL.iterdir()), _CONSTRAINTS, ROOT / "pyproject.toml")
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    made = _FOLDER / "made"
    # Tests run in several processes.
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists() or made.read_text() != digest:
            _make(script, constraints)
            made.write_text(digest)
    return Machine(_FOLDER)


def _make(script: Path, constraints: str) -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    version = re.search(r"^onnxruntime-gpu==(\S+)", constraints, re.MULTILINE)
    if version is None:
        raise UnavailableError("constraints.txt pins no onnxruntime-gpu")
    done = subprocess.run(
        [script, _FOLDER, *_requirements()],
        env={**os.environ, "ORT": version[1]},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise UnavailableError(f"the stand-in could not be built: {done.stderr[-500:]}")


def _requirements() -> list[str]:
    """Packages of a server besides onnxruntime, and of its tests."""
    pinned = ["--constraint", str(_CONSTRAINTS)]
    return [*pinned, "--editable", f"{ROOT}[serve,fast]", "psutil"]
