"""The version has one source, pyproject.toml; what repeats it agrees."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import yaml

from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]


def test_what_is_installed() -> None:
    installed = metadata.version("foretell")
    assert installed == VERSION, "an old installation: make clean test"


def test_the_command_and_the_server_tell_it(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "foretell", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert said.endswith(f"foretell, version {VERSION}\n")
    write_bundle(tmp_path, Spec(name="good"))
    with Client(tmp_path) as client:
        assert client.get("/v2").json()["version"] == VERSION
        assert client.get("/openapi.json").json()["info"]["version"] == VERSION
        text = client.get("/metrics").text
        (labels,) = re.findall(r"^foretell_build_info\{(.*)\}", text, re.MULTILINE)
        assert f'version="{VERSION}"' in labels.split(",")


def test_images_and_citations_repeat_it() -> None:
    label = re.findall(
        r"org\.opencontainers\.image\.version=(\S+)", (ROOT / "Dockerfile").read_text()
    )
    assert label == [VERSION]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


def test_the_changelog_begins_with_it() -> None:
    first = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first.partition(" ")[0] == VERSION


def test_each_line_of_the_next_changelog_says_its_kind() -> None:
    kinds = {
        one["directory"]
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
    }
    for file in (ROOT / "changes").iterdir():
        if file.name not in ("README.md", ".gitignore"):
            assert re.fullmatch(rf"\+?[\w-]+\.({'|'.join(kinds)})\.md", file.name), file.name
            assert file.read_text().count("\n") == 1, file.name
