"""The manifests agree with the service, the image and each other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
PREFIX = "FORETELL_"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")

Ask = Callable[[Literal["http", "operations"], str], int]


def read(path: str) -> Resource:
    resource: Resource = yaml.safe_load((FOLDER / path).read_text())
    return resource


RUNTIME = read("kserve/runtime.yaml")["spec"]
SERVICE = read("kserve/service.yaml")["spec"]["predictor"]


@dataclass
class Deployed:
    """Resources that kustomize builds of an overlay.

    Attributes:
        overlay: Its name.
        resources: All of its resources.
    """

    overlay: str
    resources: list[Resource]

    def spec(self, kind: str) -> dict[str, Any]:
        """Spec of the one resource of a kind."""
        spec: dict[str, Any] = only(kind, self.resources)["spec"]
        return spec

    @property
    def pod(self) -> dict[str, Any]:
        template = self.spec("Deployment")["template"]
        assert template["metadata"]["labels"] == self.spec("Service")["selector"]
        spec: dict[str, Any] = template["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        [container] = self.pod["containers"]
        return dict(container)

    @property
    def variables(self) -> dict[str, str]:
        configuration = only("ConfigMap", self.resources)
        name = {"configMapRef": {"name": configuration["metadata"]["name"]}}
        assert self.container["envFrom"][0] == name
        return dict(configuration["data"])


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    folder = tmp_path_factory.mktemp("kustomization")
    components = ["keda", "keys", "monitoring"]
    return Deployed(request.param, put_together(folder, request.param, components))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Status of a path at the port of the service or at that of operators."""
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
    """The settings of a container's variables; fails if a variable is not a setting."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert set(variables) <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    return Settings.read()


def kserve_variables() -> dict[str, str]:
    [container] = RUNTIME["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_termination_grace_covers_drain_and_grace(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod, variables in ((deployed.pod, deployed.variables), (SERVICE, kserve_variables())):
        own = as_settings(variables, monkeypatch)
        assert own.drain_delay_seconds > 0
        needed = own.drain_delay_seconds + own.grace_seconds + END_SECONDS
        assert pod["terminationGracePeriodSeconds"] >= needed
        # A Service must not set variables with names of settings.
        assert pod["enableServiceLinks"] is False


def test_ports_are_those_of_the_server(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    own = as_settings(deployed.variables, monkeypatch)
    ports = {one["name"]: one["containerPort"] for one in deployed.container["ports"]}
    assert ports == {"http": own.port, "operations": own.operations_port}
    assert own.host == "::"
    published = {one["name"]: one["targetPort"] for one in deployed.spec("Service")["ports"]}
    assert published == {"http": "http", "operations": "operations"}
    assert f"FORETELL_PORT={own.port} " in DOCKERFILE


def test_kserve_uses_the_port_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    own = as_settings(kserve_variables(), monkeypatch)
    [container] = RUNTIME["containers"]
    assert [one["containerPort"] for one in container["ports"]] == [own.port]
    assert (own.operations_port, own.host) == (None, "::")
    assert RUNTIME["annotations"]["prometheus.kserve.io/port"] == str(own.port)


def test_probes_use_existing_paths(deployed: Deployed, ask: Ask) -> None:
    probes = {name: deployed.container[name] for name in PROBES}
    probe_paths = [probe["httpGet"]["path"] for probe in probes.values()]
    assert {ask("operations", path) for path in probe_paths} == {200}
    # Kubernetes restarts a Pod if startup or liveness fails: a refused model must not do that.
    assert probe_paths == ["/healthz", "/healthz", "/readyz"]
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {"operations"}
    startup = probes["startupProbe"]
    [period] = re.findall(r"--start-period=(\w+)", DOCKERFILE)
    assert startup["periodSeconds"] * startup["failureThreshold"] == seconds(period)
    # KServe uses the same probes, at the port of the service.
    [container] = RUNTIME["containers"]
    for name, probe in probes.items():
        probe_action = {**container[name]["httpGet"], "port": "operations"}
        assert {**container[name], "httpGet": probe_action} == probe
    assert ask("http", RUNTIME["annotations"]["prometheus.kserve.io/path"]) == 200
    # v1 of KServe describes a model at its name; foretell describes all models in one list.
    paths = {"v1": "/v1/timeseries/models", "v2": "/v2"}
    assert {ask("http", paths[one]) for one in RUNTIME["protocolVersions"]} == {200}


def test_network_policies_open_each_port_to_its_clients(deployed: Deployed) -> None:
    ingress = deployed.spec("NetworkPolicy")["ingress"]
    let_in = {port["port"] for rule in ingress for port in rule["ports"]}
    assert let_in == {one["name"] for one in deployed.container["ports"]}
    [operators] = [rule for rule in ingress if rule["ports"][0]["port"] == "operations"]
    [source] = operators["from"]
    namespace = source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    # Prometheus runs at the address that KEDA queries.
    trigger = deployed.spec("ScaledObject")["triggers"][0]
    assert f".{namespace}:" in trigger["metadata"]["serverAddress"]
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        selector = deployed.spec(kind).get("podSelector") or deployed.spec(kind)["selector"]
        assert selector["matchLabels"] == deployed.spec("Service")["selector"]


def test_pods_have_minimal_privileges(deployed: Deployed) -> None:
    [uid] = re.findall(r"useradd .*--uid (\d+)", DOCKERFILE)
    pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    users = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), int(uid))
    assert deployed.pod["securityContext"] == pod | users
    container = {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert deployed.container["securityContext"] == container
    assert deployed.pod["automountServiceAccountToken"] is False
    [own] = RUNTIME["containers"]
    assert own["securityContext"] == pod | container | {"runAsUser": int(uid)}


def test_mounts_have_volumes(deployed: Deployed) -> None:
    mounts = {one["mountPath"]: one for one in deployed.container["volumeMounts"]}
    volumes = deployed.pod["volumes"]
    assert {one["name"] for one in mounts.values()} == {one["name"] for one in volumes}
    assert {path for path, one in mounts.items() if not one.get("readOnly")} == {"/tmp"}
    settings = deployed.variables
    assert settings["FORETELL_MODELS"] in mounts
    files = [Path(value) for name, value in settings.items() if name.endswith("_KEYS_FILE")]
    assert {str(file.parent) for file in files} <= set(mounts)
    keys = (FOLDER / "components/keys/kustomization.yaml").read_text()
    [command] = re.findall(r"kubectl create secret .*", keys)
    entries = re.findall(r"--from-file=(\w+)", command)
    assert set(entries) == {file.name for file in files}
    [secret] = [one["secret"] for one in volumes if "secret" in one]
    assert f" {secret['secretName']} --namespace foretell " in command


def test_models_may_come_from_a_bucket(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = "s3://bucket/forecasts"
    given = [f"FORETELL_MODELS={models}"]
    resources = put_together(tmp_path, deployed.overlay, ["object-storage"], given)
    other = Deployed(deployed.overlay, resources)
    own = as_settings(other.variables, monkeypatch)
    assert own.models == models
    mounts = {one["mountPath"]: one["name"] for one in other.container["volumeMounts"]}
    assert {one["name"] for one in other.pod["volumes"]} == set(mounts.values()) == {"cache", "tmp"}
    assert str(own.cache) in mounts
    secret = {"secretRef": {"name": "foretell-storage", "optional": True}}
    assert other.container["envFrom"][1:] == [secret]
    egress = other.spec("NetworkPolicy")["egress"]
    [roles] = [rule for rule in egress if "ipBlock" in rule.get("to", [{}])[0]]
    assert {port["port"] for port in roles["ports"]} == {80, 987, 988, 8080}
    others = [port["port"] for rule in egress if rule is not roles for port in rule["ports"]]
    assert set(others) == {53, 443}
    assert len(other.spec("NetworkPolicy")["ingress"]) == 2


def test_autoscaler_sets_the_replicas_and_one_stays_available(deployed: Deployed) -> None:
    deployment, scaled = deployed.spec("Deployment"), deployed.spec("ScaledObject")
    hpa = read("components/hpa/autoscaler.yaml")["spec"]
    replicas = read("base/deployment.yaml")["spec"]["replicas"]
    [least] = {scaled["minReplicaCount"], hpa["minReplicas"], replicas, SERVICE["minReplicas"]}
    assert deployed.spec("PodDisruptionBudget")["maxUnavailable"] < least
    rolling = deployment["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] < least
    # No GPU is free for an additional Pod.
    surge = int(deployed.overlay == "cpu")
    assert rolling == {"maxSurge": surge, "maxUnavailable": 1 - surge}
    assert "replicas" not in deployment
    name = only("Deployment", deployed.resources)["metadata"]["name"]
    assert scaled["scaleTargetRef"]["name"] == name
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert hpa["scaleTargetRef"] == target


def test_autoscaler_uses_existing_metrics(deployed: Deployed) -> None:
    text = Metrics().render(gauges([], 1, ready=True)).decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    triggers = deployed.spec("ScaledObject")["triggers"]
    [query] = [one["metadata"]["query"] for one in triggers if one["type"] == "prometheus"]
    assert set(re.findall(r"\bforetell_\w+", query)) <= known
    resources = [one for one in deployed.resources if one["kind"] != "Namespace"]
    [namespace] = {one["metadata"]["namespace"] for one in resources}
    assert namespace == only("Namespace", deployed.resources)["metadata"]["name"]
    assert set(re.findall(r'namespace="(\w+)"', query)) == {namespace}


def test_prometheus_labels_pods_with_the_job_of_the_alerts(deployed: Deployed, ask: Ask) -> None:
    monitor = deployed.spec("ServiceMonitor")
    labels = only("Service", deployed.resources)["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert f'job="{labels[monitor["jobLabel"]]}"' in (DEPLOY / "alerts.yml").read_text()
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in {one["name"] for one in deployed.spec("Service")["ports"]}
    assert ask(endpoint["port"], endpoint["path"]) == 200


def test_image_and_resources_fit_the_device(deployed: Deployed) -> None:
    name, _, target = deployed.container["image"].partition(":")
    assert (name, target) == ("foretell", deployed.overlay)
    assert f"\nFROM serving AS {target}\n" in DOCKERFILE
    limits = deployed.container["resources"]["limits"]
    assert limits == deployed.container["resources"]["requests"]
    assert {"cpu", "memory"} <= set(limits)
    assert ("nvidia.com/gpu" in limits) == (deployed.overlay == "gpu")
    # A CPU for each process.
    assert int(deployed.variables.get("FORETELL_WORKERS", 1)) < int(limits["cpu"])


def test_kserve_serves_the_folder_of_its_storage_initializer() -> None:
    [container] = RUNTIME["containers"]
    # KServe knows the container by its name, and puts models there.
    assert container["name"] == "kserve-container"
    assert kserve_variables()["FORETELL_MODELS"] == "/mnt/models"
    [served] = RUNTIME["supportedModelFormats"]
    assert SERVICE["model"]["modelFormat"] == {"name": served["name"], "version": served["version"]}
    # Without the slash, keys that only begin with the name would be copied too.
    assert SERVICE["model"]["storageUri"].endswith("/")
    assert SERVICE["model"]["runtime"] == read("kserve/runtime.yaml")["metadata"]["name"]
