"""Prints what `make lowest` installs: the lowest versions that pyproject.toml allows, and tools."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("serve", "cpu", "fast", "otel", "train", "storage")
# Other packages of the tests, pinned.
TOOLS = (
    *("flask", "flask-cors", "hypothesis", "jsonschema-rs", "moto[s3]", "narwhals", "polars"),
    *("psutil", "pytest", "pytest-timeout", "pytest-xdist", "tenacity", "tritonclient[http]"),
    "zstandard",
)


def floor(requirement: Requirement) -> str | None:
    """The lowest version that a requirement allows."""
    lowest = [one.version for one in requirement.specifier if one.operator in (">=", "~=", "==")]
    return lowest[0].removesuffix(".*") if lowest else None


def floors() -> dict[str, str]:
    """The lowest version of each library that users install, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in optional[extra])]
    found = {one.name: floor(one) for one in map(Requirement, lines)}
    return {canonicalize_name(name): version for name, version in found.items() if version}


def pins() -> dict[str, str]:
    """The pinned version of each library, by its name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


if __name__ == "__main__":
    pinned = pins()
    tools = {name: pinned[name.partition("[")[0]] for name in TOOLS}
    lines = {**floors(), **tools}
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in lines.items())
