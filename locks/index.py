"""The index of packages: requirements and files of pinned versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pypi_simple import PYPI_SIMPLE_ENDPOINT, PyPISimple

from locks.files import Files
from locks.sets import LockError

INDEX = os.environ.get("PIP_INDEX_URL", PYPI_SIMPLE_ENDPOINT)
_SECONDS = 1800


def requirements(pins: dict[str, str]) -> dict[str, list[Requirement]]:
    """The requirements of pinned versions.

    Raises:
        LockError: pip cannot find one of them; the message has the end of its output.
    """
    # Other builds of the same version may lie on this machine; they have other requirements.
    local = {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_REQUIREMENT"}
    variables = {name: value for name, value in os.environ.items() if name not in local}
    with tempfile.TemporaryDirectory() as folder:
        listed, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        done = subprocess.run(
            # fast-deps: read the requirements of a large wheel without all of the wheel.
            (
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
                *("--no-deps", "--use-feature", "fast-deps", "--index-url", INDEX, "--quiet"),
                *("--report", str(report), "--requirement", str(listed)),
            ),
            env={**variables, "PIP_CONFIG_FILE": os.devnull},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise LockError(f"pip: {done.stderr.strip()[-500:]}")
        found = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return {
        canonicalize_name(one["name"]): list(map(Requirement, one.get("requires_dist", [])))
        for one in found
    }


def files(pins: dict[str, str]) -> dict[str, Files]:
    """The files of pinned versions, for all Pythons and machines."""
    found = {}
    with PyPISimple(INDEX) as client:
        for name, version in pins.items():
            page = client.get_project_page(name)
            its = [one for one in page.packages if _same(one.version, version)]
            wheels, source = (
                {one.filename: one.digests["sha256"] for one in its if one.package_type == kind}
                for kind in ("wheel", "sdist")
            )
            found[name] = Files(wheels, source)
    return found


def _same(version: str | None, other: str) -> bool:
    # An index still has versions of a form that is not valid any more.
    with suppress(InvalidVersion):
        return version is not None and Version(version) == Version(other)
    return False
