"""What contributors are told: targets of make, and hooks that are what CI runs."""

from __future__ import annotations

import re
import subprocess

import yaml

from tests.test_architecture import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


def test_help_lists_every_target() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.findall(r"^make (\S+) +\S", done.stdout, re.MULTILINE)
    assert len(listed) == len(done.stdout.splitlines())
    found = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    assert sorted(listed) == sorted(found[1].replace("\\", "").split())


def test_the_hooks_are_what_ci_runs() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    made = {word for line in lines if line.startswith("make ") for word in line.split()}
    assert {"lint", "types", "test-all"} <= made
    run = [line for target in ("lint", "types") for line in recipe(target)]
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    # From anywhere else they would have to be fetched.
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == run
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def recipe(target: str) -> list[str]:
    """The commands that a target runs."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]
