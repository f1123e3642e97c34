"""The manifests keep to the schemas of what they are for, which others publish.

Kubernetes' own are those of the package kubernetes-validate, which is only read; KServe's the
classes that its package has of its OpenAPI document, read as texts, for to import them takes more
than is installed; those of KEDA and of Prometheus' operator lie in `operators/`.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
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
from tests.support.process import ROOT

VERSIONS = ("1.32", "1.37")
_OPERATORS = Path(__file__).parent / "operators" / "operators.json"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# JSON types by their names in `openapi-generator`.
_PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}


@cache
def _file(distribution: str, path: str) -> Path:
    found = metadata.distribution(distribution).locate_file(path)
    return Path(str(found))


@cache
def kubernetes(version: str, name: str) -> jsonschema_rs.Validator:
    """Schema of a type such as `io.k8s.api.core.v1.Container`, without additional members."""
    folder = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
    text = _file("kubernetes-validate", f"{folder}/_definitions.json").read_text()
    definitions = json.loads(text.replace("/api/_definitions.json#", "#"))
    return jsonschema_rs.validator_for({**definitions, "$ref": f"#/$defs/{name}"})


@cache
def operators() -> jsonschema_rs.Validator:
    """Schemas of KEDA and of Prometheus' operator."""
    return jsonschema_rs.validator_for(json.loads(_OPERATORS.read_text()))


def check(resource: dict[str, Any], version: str) -> None:
    """Compare a resource with the schema of its kind.

    Raises:
        AssertionError: it does not fit the schema.
    """
    group, _, own = resource["apiVersion"].rpartition("/")
    if group == "serving.kserve.io":
        name = own[0].upper() + own[1:] + resource["kind"]
        _check_kserve(resource, name, resource["kind"])
        return
    if group in ("keda.sh", "monitoring.coreos.com"):
        validator = operators()
    else:
        # `networking.k8s.io` is `networking` here, and the group without a name `core`.
        validator = kubernetes(
            version, f"io.k8s.api.{group.split('.')[0] or 'core'}.{own}.{resource['kind']}"
        )
    assert not [
        f"{error.instance_path}: {error.message}" for error in validator.iter_errors(resource)
    ]


class _Type(NamedTuple):
    """A class of KServe: its fields' types by their names in JSON, and those that it requires."""

    fields: dict[str, str]
    required: set[str]


@cache
def _modules() -> dict[str, str]:
    try:
        path = _file("kserve", "kserve/models/__init__.py")
    except metadata.PackageNotFoundError:
        pytest.skip("kserve is not installed: pip install --no-deps kserve")
    return {
        name: module
        for module, name in re.findall(
            r"^from kserve\.models\.(\w+) import (\w+)", path.read_text(), re.MULTILINE
        )
    }


@cache
def _type(name: str) -> _Type:
    text = _file("kserve", f"kserve/models/{_modules()[name]}.py").read_text()

    def literal(variable: str) -> dict[str, str]:
        found = re.search(rf"^    {variable} = (\{{.*?\n    \}})", text, re.MULTILINE | re.DOTALL)
        assert found is not None
        return dict(ast.literal_eval(found[1]))

    types, names = literal("openapi_types"), literal("attribute_map")
    required = set(re.findall(r"Invalid value for `(\w+)`, must not be `None`", text))
    return _Type(
        {names[own]: kind for own, kind in types.items()}, {names[own] for own in required}
    )


def _check_kserve(value: Any, kind: str, place: str) -> None:
    if found := re.fullmatch(r"list\[(.+)\]", kind):
        assert isinstance(value, list), place
        for index, one in enumerate(value):
            _check_kserve(one, found[1], f"{place}[{index}]")
    elif found := re.fullmatch(r"dict\(str, (.+)\)", kind):
        assert isinstance(value, dict), place
        for key, one in value.items():
            _check_kserve(one, found[1], f"{place}.{key}")
    elif kind in _PLAIN:
        assert isinstance(value, _PLAIN[kind]), f"{place}: {value!r} is no {kind}"
    elif kind in _modules():
        assert isinstance(value, dict), place
        known = _type(kind)
        assert set(value) <= set(known.fields), f"{place}: {set(value) - set(known.fields)}"
        assert known.required <= set(value), f"{place}: {known.required - set(value)} missing"
        for key, one in value.items():
            _check_kserve(one, known.fields[key], f"{place}.{key}")
    else:
        name = _META if kind == "V1ObjectMeta" else f"io.k8s.api.core.v1.{kind.removeprefix('V1')}"
        errors = kubernetes(VERSIONS[-1], name).iter_errors(value)
        assert not [f"{place}{error.instance_path}: {error.message}" for error in errors]


PAGE = ROOT / "docs" / "guides" / "kubernetes.md"
FILES = {str(path.relative_to(FOLDER)): path for path in resources()}
ALL = {name: yaml.safe_load(path.read_text()) for name, path in FILES.items()}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_file_is_valid(name: str, version: str) -> None:
    check(ALL[name], version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
@pytest.mark.parametrize("omitted", sorted(AUTOSCALERS))
def test_built_overlays_are_valid(overlay: str, omitted: str, version: str, tmp_path: Path) -> None:
    names = [name for name in COMPONENTS if name != omitted]
    found = put_together(tmp_path, overlay, names)
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found) > len(names)
    for resource in found:
        check(resource, version)


def test_example_of_the_page_is_valid(tmp_path: Path) -> None:
    [text, patch] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "foretell").symlink_to(ROOT)
    (tmp_path / "kustomization.yaml").write_text(f"{text}patches: [{{path: image.yaml}}]\n")
    (tmp_path / "image.yaml").write_text(patch)
    found = build(tmp_path)
    volumes = only("Deployment", found)["spec"]["template"]["spec"]["volumes"]
    [models] = [each for each in volumes if each["name"] == "models"]
    assert models == {"name": "models", "image": {"reference": "ghcr.io/team/models/patchtst:7"}}
    [container] = only("Deployment", found)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/forecasts/foretell:cpu-0.1.0"
    assert only("ConfigMap", found)["data"]["FORETELL_VERSIONS"] == "latest"
    for resource in found:
        check(resource, VERSIONS[-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_kserve_resources_are_valid(version: str) -> None:
    found = build(FOLDER / "kserve")
    assert {one["kind"] for one in found} == {"ServingRuntime", "InferenceService"}
    for resource in found:
        check(resource, version)
