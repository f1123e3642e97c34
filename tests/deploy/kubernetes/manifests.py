"""deploy/kubernetes/, as files and as kustomize puts them together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY

FOLDER = DEPLOY / "kubernetes"
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
# Only one of them sets the number of Pods.
AUTOSCALERS = {"hpa", "keda"}
# The first kubectl whose kustomize has all features that are used here.
_KUBECTL_MINOR = 27

Resource = dict[str, Any]


def resources() -> Iterator[Path]:
    """The files that are resources by themselves: no kustomization, and no patch of one."""
    for kustomization in sorted(FOLDER.rglob("kustomization.yaml")):
        for name in yaml.safe_load(kustomization.read_text()).get("resources", []):
            if (path := kustomization.parent / name).is_file():
                yield path


@cache
def _why_no_kubectl() -> str:
    if shutil.which("kubectl") is None:
        return "no kubectl here, which has kustomize inside"
    done = subprocess.run(
        ["kubectl", "version", "--client", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
    )
    minor = json.loads(done.stdout)["clientVersion"]["minor"] if done.returncode == 0 else "0"
    if int(minor.rstrip("+")) < _KUBECTL_MINOR:
        return f"kubectl is older than 1.{_KUBECTL_MINOR}"
    return ""


def build(folder: Path) -> list[Resource]:
    """Resources that kustomize builds of a folder; skips without kustomize.

    Raises:
        AssertionError: kustomize refuses it.
    """
    if reason := _why_no_kubectl():
        pytest.skip(reason)
    done = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def put_together(
    folder: Path, overlay: str, components: Sequence[str] = (), settings: Sequence[str] = ()
) -> list[Resource]:
    """An overlay with components, combined as in docs/guides/kubernetes.md.

    Args:
        folder: Where the kustomization of overlay and components is written.
        overlay: `cpu` or `gpu`.
        components: Names of the components.
        settings: The user's own settings, `NAME=value`.
    """

    def relative(kind: str, name: str) -> str:
        return os.path.relpath(FOLDER / kind / name, folder)

    generated = {"name": "foretell", "namespace": "foretell", "behavior": "merge"}
    own = {
        "resources": [relative("overlays", overlay)],
        "components": [relative("components", name) for name in components],
        "configMapGenerator": [{**generated, "literals": [*settings]}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return build(folder)


def only(kind: str, found: Sequence[Resource]) -> Resource:
    """The one resource of a kind."""
    [resource] = [one for one in found if one["kind"] == kind]
    return resource
