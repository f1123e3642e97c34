"""The manifests keep to the schemas of what they are for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kubernetes.manifests import (
    AUTOSCALERS,
    COMPONENTS,
    FOLDER,
    build,
    only,
    put_together,
    resources,
)
from tests.deploy.kubernetes.schemas import VERSIONS, check
from tests.support.process import ROOT

PAGE = ROOT / "docs" / "guides" / "kubernetes.md"
FILES = {str(path.relative_to(FOLDER)): path for path in resources()}
ALL = {name: yaml.safe_load(path.read_text()) for name, path in FILES.items()}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_a_file_keeps_to_its_schema(name: str, version: str) -> None:
    check(ALL[name], version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
@pytest.mark.parametrize("left_out", sorted(AUTOSCALERS))
def test_all_together_keeps_to_them(
    overlay: str, left_out: str, version: str, tmp_path: Path
) -> None:
    names = [name for name in COMPONENTS if name != left_out]
    found = put_together(tmp_path, overlay, names)
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found) > len(names)
    for resource in found:
        check(resource, version)


def test_the_page_puts_together_what_can_be(tmp_path: Path) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "foretell").symlink_to(ROOT)
    (tmp_path / "kustomization.yaml").write_text(text)
    found = build(tmp_path)
    [container] = only("Deployment", found)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/forecasts/foretell:cpu-0.1.0"
    assert only("ConfigMap", found)["data"]["FORETELL_VERSIONS"] == "latest"
    for resource in found:
        check(resource, VERSIONS[-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_kserve_is_given_keeps_to_them(version: str) -> None:
    found = build(FOLDER / "kserve")
    assert {one["kind"] for one in found} == {"ServingRuntime", "InferenceService"}
    for resource in found:
        check(resource, version)


# Whose keys everybody chooses.
FREE = {"labels", "annotations", "matchLabels", "requests", "limits", "selector"}


def misspelt(value: Any, *, free: bool = False) -> Iterator[Any]:
    """Copies of a value, each with one name within it misspelt."""
    entries: list[Any] = []
    if isinstance(value, dict):
        entries = [(key, one, key in FREE) for key, one in value.items()]
        for key in () if free else value:
            yield {f"{own}s" if own == key else own: one for own, one in value.items()}
    elif isinstance(value, list):
        entries = [(index, one, False) for index, one in enumerate(value)]
    for key, one, its_are_free in entries:
        for wrong in misspelt(one, free=its_are_free):
            copy_of = copy(value)
            copy_of[key] = wrong
            yield copy_of


@pytest.mark.parametrize(
    "name",
    [
        "base/deployment.yaml",
        "base/network.yaml",
        "components/monitoring/servicemonitor.yaml",
        "kserve/runtime.yaml",
        "kserve/service.yaml",
    ],
)
def test_a_misspelt_name_is_found(name: str) -> None:
    spoilt = [one for one in misspelt(ALL[name]) if {"apiVersion", "kind"} <= set(one)]
    assert len(spoilt) > 8
    for wrong in spoilt:
        with pytest.raises(AssertionError):
            check(wrong, VERSIONS[-1])
