"""What the manifests say agrees with the service, the image and with each other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import yaml

from foretell.service.api.app import create_operations_app
from foretell.service.engine.statistics import gauges
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.deploy.files import DEPLOY, END_SECONDS, seconds
from tests.deploy.kubernetes.manifests import FOLDER, Resource, only, put_together
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
OVERLAYS = ("cpu", "gpu")
PREFIX = "FORETELL_"

Ask = Callable[[Literal["http", "operations"], str], int]


def read(path: str) -> Resource:
    resource: Resource = yaml.safe_load((FOLDER / path).read_text())
    return resource


RUNTIME = read("kserve/runtime.yaml")["spec"]
SERVICE = read("kserve/service.yaml")["spec"]["predictor"]


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def found(overlay: str, tmp_path_factory: pytest.TempPathFactory) -> list[Resource]:
    folder = tmp_path_factory.mktemp("kustomization")
    return put_together(folder, overlay, ["keda", "keys", "monitoring"])


@pytest.fixture(scope="module")
def pod(found: list[Resource]) -> dict[str, Any]:
    template = only("Deployment", found)["spec"]["template"]
    assert template["metadata"]["labels"] == only("Service", found)["spec"]["selector"]
    spec: dict[str, Any] = template["spec"]
    return spec


@pytest.fixture(scope="module")
def settings(found: list[Resource], pod: dict[str, Any]) -> dict[str, str]:
    """The variables of the container."""
    configuration = only("ConfigMap", found)
    [container] = pod["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": configuration["metadata"]["name"]}}]
    data: dict[str, str] = configuration["data"]
    return data


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The status that the port of the service, or the one for operators, gives a path."""
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec())
    with Client(folder) as client:
        operations = create_operations_app(client.engine)

        async def get(path: str) -> int:
            transport = httpx.ASGITransport(operations)
            async with httpx.AsyncClient(transport=transport, base_url="http://pod") as http:
                return (await http.get(path)).status_code

        yield (
            lambda port, path: (
                asyncio.run(get(path)) if port == "operations" else client.get(path).status_code
            )
        )


def as_settings(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings that a container's variables are; fails if one of them is none."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert set(variables) <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    return Settings.read()


def kserve_variables() -> dict[str, str]:
    [container] = RUNTIME["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_accepted_requests_are_answered_before_it_is_killed(
    settings: dict[str, str], pod: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = as_settings(settings, monkeypatch)
    own = read.drain_delay_seconds + read.grace_seconds
    assert read.drain_delay_seconds > 0
    assert pod["terminationGracePeriodSeconds"] >= own + END_SECONDS


def test_kserve_gives_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read = as_settings(kserve_variables(), monkeypatch)
    own = read.drain_delay_seconds + read.grace_seconds
    assert read.drain_delay_seconds > 0
    assert SERVICE["terminationGracePeriodSeconds"] >= own + END_SECONDS


def test_ports_are_those_it_listens_on(
    found: list[Resource],
    settings: dict[str, str],
    pod: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = as_settings(settings, monkeypatch)
    [container] = pod["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"http": read.port, "operations": read.operations_port}
    assert read.host == "::"
    published = {one["name"]: one["targetPort"] for one in only("Service", found)["spec"]["ports"]}
    assert published == {"http": "http", "operations": "operations"}
    assert f"FORETELL_PORT={read.port} " in DOCKERFILE


def test_kserve_asks_the_port_it_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    read = as_settings(kserve_variables(), monkeypatch)
    [container] = RUNTIME["containers"]
    assert [one["containerPort"] for one in container["ports"]] == [read.port]
    assert (read.operations_port, read.host) == (None, "::")
    assert RUNTIME["annotations"]["prometheus.kserve.io/port"] == str(read.port)


def test_probes_ask_for_what_there_is(pod: dict[str, Any], ask: Ask) -> None:
    [container] = pod["containers"]
    probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    asked = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert {ask("operations", path) for path in asked.values()} == {200}
    # Who fails the first two is killed: a model that is refused is no reason.
    assert asked == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {"operations"}
    patience = probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"]
    [period] = re.findall(r"--start-period=(\w+)", DOCKERFILE)
    assert patience == seconds(period)


def test_kserve_probes_in_the_same_way(ask: Ask) -> None:
    [container] = RUNTIME["containers"]
    [deployed] = read("base/deployment.yaml")["spec"]["template"]["spec"]["containers"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = {**container[name], "httpGet": {**container[name]["httpGet"], "port": "operations"}}
        assert probe == deployed[name]
    assert ask("http", RUNTIME["annotations"]["prometheus.kserve.io/path"]) == 200
    # KServe's first protocol has a model's description at its name, ours at its list.
    paths = {"v1": "/v1/timeseries/models", "v2": "/v2"}
    assert {ask("http", paths[one]) for one in RUNTIME["protocolVersions"]} == {200}


def test_policies_let_in_whom_the_ports_are_for(found: list[Resource], pod: dict[str, Any]) -> None:
    policy = only("NetworkPolicy", found)["spec"]
    [container] = pod["containers"]
    let_in = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert let_in == {one["name"] for one in container["ports"]}
    [operators] = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == "operations"]
    [source] = operators["from"]
    namespace = source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    # Prometheus is there, and KEDA asks it there.
    trigger = only("ScaledObject", found)["spec"]["triggers"][0]
    assert f".{namespace}:" in trigger["metadata"]["serverAddress"]
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        spec = only(kind, found)["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        assert selector["matchLabels"] == only("Service", found)["spec"]["selector"]


def test_pods_may_do_no_more_than_they_have_to(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    [uid] = re.findall(r"useradd .*--uid (\d+)", DOCKERFILE)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), int(uid)),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    [own] = RUNTIME["containers"]
    assert own["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(uid),
        "seccompProfile": {"type": "RuntimeDefault"},
        **container["securityContext"],
    }


def test_no_service_sets_what_looks_like_a_setting(pod: dict[str, Any]) -> None:
    assert pod["enableServiceLinks"] is False
    assert SERVICE["enableServiceLinks"] is False


def test_what_is_mounted_is_there(settings: dict[str, str], pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert {one["name"] for one in mounts.values()} == {one["name"] for one in pod["volumes"]}
    assert {path for path, one in mounts.items() if not one.get("readOnly")} == {"/tmp"}
    assert settings["FORETELL_MODELS"] in mounts
    files = {name: value for name, value in settings.items() if name.endswith("_KEYS_FILE")}
    assert {str(Path(value).parent) for value in files.values()} <= set(mounts)
    [command] = re.findall(
        r"kubectl create secret .*", (FOLDER / "components/keys/kustomization.yaml").read_text()
    )
    entries = re.findall(r"--from-file=(\w+)", command)
    assert set(entries) == {Path(value).name for value in files.values()}
    [secret] = [one["secret"] for one in pod["volumes"] if "secret" in one]
    assert f" {secret['secretName']} --namespace foretell " in command


def test_models_may_come_from_a_bucket(
    overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = "FORETELL_MODELS=s3://bucket/forecasts"
    found = put_together(tmp_path, overlay, ["object-storage"], [models])
    pod = only("Deployment", found)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    variables = only("ConfigMap", found)["data"]
    read = as_settings(variables, monkeypatch)
    assert read.models == "s3://bucket/forecasts"
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert {one["name"] for one in pod["volumes"]} == set(mounts.values()) == {"cache", "tmp"}
    assert str(read.cache) in mounts
    # Nothing else has changed of where the variables come from.
    assert container["envFrom"] == [
        {"configMapRef": {"name": only("ConfigMap", found)["metadata"]["name"]}},
        {"secretRef": {"name": "foretell-storage", "optional": True}},
    ]
    egress = only("NetworkPolicy", found)["spec"]["egress"]
    [roles] = [rule for rule in egress if "ipBlock" in rule.get("to", [{}])[0]]
    assert {port["port"] for port in roles["ports"]} == {80, 987, 988, 8080}
    others = [port["port"] for rule in egress if rule is not roles for port in rule["ports"]]
    assert set(others) == {53, 443}
    assert len(only("NetworkPolicy", found)["spec"]["ingress"]) == 2


def test_one_is_always_left(found: list[Resource]) -> None:
    scaled = only("ScaledObject", found)["spec"]
    hpa = read("components/hpa/autoscaler.yaml")["spec"]
    replicas = read("base/deployment.yaml")["spec"]["replicas"]
    [least] = {scaled["minReplicaCount"], hpa["minReplicas"], replicas, SERVICE["minReplicas"]}
    assert only("PodDisruptionBudget", found)["spec"]["maxUnavailable"] < least
    assert only("Deployment", found)["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] < least


def test_an_autoscaler_is_the_only_one_who_says_how_many(found: list[Resource]) -> None:
    deployment = only("Deployment", found)
    assert "replicas" not in deployment["spec"]
    name = deployment["metadata"]["name"]
    assert only("ScaledObject", found)["spec"]["scaleTargetRef"]["name"] == name
    target = read("components/hpa/autoscaler.yaml")["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}


def test_it_scales_by_what_is_measured(found: list[Resource]) -> None:
    text = Metrics().render(gauges([], 1, ready=True)).decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    [query] = [
        trigger["metadata"]["query"]
        for trigger in only("ScaledObject", found)["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    assert set(re.findall(r"\bforetell_\w+", query)) == {
        "foretell_queue_depth",
        "foretell_batch_limit",
    }
    assert set(re.findall(r"\bforetell_\w+", query)) <= known
    [namespace] = {one["metadata"]["namespace"] for one in found if one["kind"] != "Namespace"}
    assert namespace == only("Namespace", found)["metadata"]["name"]
    assert set(re.findall(r'namespace="(\w+)"', query)) == {namespace}


def test_what_prometheus_finds_has_the_job_of_the_alerts(found: list[Resource], ask: Ask) -> None:
    monitor, service = only("ServiceMonitor", found)["spec"], only("Service", found)
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    job = service["metadata"]["labels"][monitor["jobLabel"]]
    assert f'job="{job}"' in (DEPLOY / "alerts.yml").read_text()
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in {one["name"] for one in service["spec"]["ports"]}
    assert ask(endpoint["port"], endpoint["path"]) == 200


def test_the_image_is_the_one_for_the_device(overlay: str, pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    name, _, target = container["image"].partition(":")
    assert (name, target) == ("foretell", overlay)
    assert f"\nFROM serving AS {target}\n" in DOCKERFILE


def test_it_counts_what_it_has(overlay: str, settings: dict[str, str], pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    limits = container["resources"]["limits"]
    assert limits == container["resources"]["requests"]
    assert {"cpu", "memory"} <= set(limits)
    assert ("nvidia.com/gpu" in limits) == (overlay == "gpu")
    # A CPU for each process.
    assert int(settings.get("FORETELL_WORKERS", 1)) < int(limits["cpu"])


def test_a_pod_is_replaced_with_what_there_is(overlay: str, found: list[Resource]) -> None:
    rolling = only("Deployment", found)["spec"]["strategy"]["rollingUpdate"]
    # There is no GPU to spare.
    expected = (
        {"maxSurge": 0, "maxUnavailable": 1}
        if overlay == "gpu"
        else {"maxSurge": 1, "maxUnavailable": 0}
    )
    assert rolling == expected


def test_kserve_serves_what_it_has_fetched() -> None:
    [container] = RUNTIME["containers"]
    # KServe knows the container by its name, and puts models there.
    assert container["name"] == "kserve-container"
    assert kserve_variables()["FORETELL_MODELS"] == "/mnt/models"
    [served] = RUNTIME["supportedModelFormats"]
    assert SERVICE["model"]["modelFormat"] == {"name": served["name"], "version": served["version"]}
    # Without the slash it takes whatever else begins so.
    assert SERVICE["model"]["storageUri"].endswith("/")
    assert SERVICE["model"]["runtime"] == read("kserve/runtime.yaml")["metadata"]["name"]
