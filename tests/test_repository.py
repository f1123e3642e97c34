"""Facts in several files agree: versions, licences, targets of make, hooks."""

from __future__ import annotations

import json
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

MAKEFILE = (ROOT / "Makefile").read_text()
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIG["project"]
VERSION = PROJECT["version"]
VENDOR = ROOT / "service" / "page" / "vendor"


def test_command_and_server_report_the_version(tmp_path: Path) -> None:
    assert metadata.version("foretell") == VERSION, "an old installation: make clean test"
    command = [sys.executable, "-m", "foretell", "--version"]
    output = subprocess.run(command, stdout=-1, text=True, check=True).stdout
    assert output.endswith(f"foretell, version {VERSION}\n")
    write_bundle(tmp_path, Spec(name="good"))
    with Client(tmp_path) as client:
        assert client.get("/v2").json()["version"] == VERSION
        assert client.get("/openapi.json").json()["info"]["version"] == VERSION
        text = client.get("/metrics").text
        (labels,) = re.findall(r"^foretell_build_info\{(.*)\}", text, re.MULTILINE)
        assert f'version="{VERSION}"' in labels.split(",")


def test_images_and_citations_repeat_the_version() -> None:
    label = re.findall(
        r"org\.opencontainers\.image\.version=(\S+)", (ROOT / "Dockerfile").read_text()
    )
    assert label == [VERSION]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


def test_the_changelog_begins_with_the_version() -> None:
    first = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first.partition(" ")[0] == VERSION
    kinds = "|".join(one["directory"] for one in CONFIG["tool"]["towncrier"]["type"])
    for file in (ROOT / "changes").iterdir():
        if file.name not in ("README.md", ".gitignore"):
            assert re.fullmatch(rf"\+?[\w-]+\.({kinds})\.md", file.name), file.name
            assert file.read_text().count("\n") == 1, file.name


def test_notice_names_every_library_of_the_page() -> None:
    packages = json.loads((VENDOR / "assets.json").read_text())
    notice = (ROOT / "NOTICE").read_text()
    named = [line for line in notice.split("\n\n")[2].splitlines() if not line.startswith(" ")]
    assert named == [f"{one['name']} {one['version']}, {one['licence']}" for one in packages]
    known = {asset["file"] for one in packages for asset in one["files"]}
    there = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()}
    assert there == known | {"assets.json"}
    lines = {line.strip() for line in notice.splitlines()}
    repeated = sorted(VENDOR.glob("licences/*notice.txt"))
    assert repeated
    for one in repeated:
        assert set(one.read_text().split("\n")) - {""} <= lines


def test_help_lists_every_target() -> None:
    command = ["make", "--no-print-directory", "help"]
    printed = subprocess.run(command, cwd=ROOT, stdout=-1, text=True, check=True).stdout
    listed = re.findall(r"^make (\S+) +\S", printed, re.MULTILINE)
    assert len(listed) == len(printed.splitlines())
    found = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    assert sorted(listed) == sorted(found[1].replace("\\", "").split())


def recipe(target: str) -> list[str]:
    """The commands that a target runs."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_hooks_run_the_commands_of_ci() -> None:
    called = re.findall(r"^\./(\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    words = {word for name in called for word in (ROOT / ".ci" / name).read_text().split()}
    assert {"lint", "types", "test-all"} <= words
    run = [line for target in ("lint", "types") for line in recipe(target)]
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    # From anywhere else they would have to be fetched.
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == run
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
