"""Workflows of GitHub run the scripts of .ci/, with limits and few rights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.process import ROOT

# Commands that run code of the project, or build packages from it.
PROJECT_CODE = re.compile(r"python\S* -m|/pip |\bmake |docker run|buildx build")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = {path.name for path in (ROOT / ".ci").iterdir()}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def commands() -> list[list[str]]:
    """Commands of all steps that run a script of .ci/, as words."""
    steps = [
        step for file in WORKFLOWS for job in jobs(file).values() for step in job.get("steps", ())
    ]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    return [line.removeprefix("sudo ").split() for line in lines if ".ci/" in line]


def test_workflows_run_scripts_that_exist() -> None:
    called = {words[0].removeprefix(".ci/") for words in commands()}
    assert called <= SCRIPTS
    within = (ROOT / ".ci" / "run").read_text()
    assert {name for name in SCRIPTS if f"./{name}" in within} <= called
    assert all(os.access(ROOT / ".ci" / name, os.X_OK) for name in SCRIPTS)


def test_workflows_name_targets_of_make() -> None:
    named = {
        word
        for words in commands()
        if words[0] in (".ci/test", ".ci/package")
        for word in words[1:]
    }
    assert {"types", "test", "lowest", "docs"} <= named
    assert named <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_are_limited_in_time_and_rights(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {}
    for name, job in jobs(workflow).items():
        assert "permissions" in job, name
        assert job.get("timeout-minutes", 999) <= 120 or "uses" in job, name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_and_images_are_pinned_with_their_versions(workflow: Path) -> None:
    for line in workflow.read_text().splitlines():
        if "uses: " in line:
            assert re.search(r"uses: (\./|\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)", line), line
        if "image=" in line:
            assert re.search(r":v\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$", line), line


def test_every_action_has_one_digest() -> None:
    text = "\n".join(file.read_text() for file in WORKFLOWS)
    digests = dict(re.findall(r"uses: (\S+)@(\S+)", text))
    assert set(re.findall(r"uses: (\S+)@(\S+)", text)) == set(digests.items())


def test_jobs_of_a_release_that_may_write_run_no_code_of_the_project() -> None:
    found = jobs(ROOT / ".github" / "workflows" / "release.yml")
    writing = {name: job for name, job in found.items() if "write" in job["permissions"].values()}
    assert {"sign", "pypi", "release"} == set(writing)
    for name, job in writing.items():
        for line in (step.get("run", "") for step in job["steps"]):
            assert not PROJECT_CODE.search(line), name
            for script in re.findall(r"\.ci/(\w+)", line):
                assert not PROJECT_CODE.search((ROOT / ".ci" / script).read_text()), name
    # The expression finds what the other jobs run.
    assert PROJECT_CODE.search((ROOT / ".ci" / "image").read_text())


def test_notes_of_a_release_are_refused_while_changes_are_left(tmp_path: Path) -> None:
    for name in (".ci/notes", ".ci/version", "pyproject.toml", "CHANGELOG.md", "changes/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def notes() -> subprocess.CompletedProcess[str]:
        return subprocess.run([tmp_path / ".ci/notes"], capture_output=True, text=True, timeout=60)

    assert notes().returncode == 0
    (tmp_path / "changes" / "+more.added.md").write_text("More.\n")
    found = notes()
    assert found.returncode == 1
    assert "left: +more.added.md" in found.stderr
