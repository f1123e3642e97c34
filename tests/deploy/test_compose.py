"""docker-compose.yml, without Docker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.deploy.files import COMPOSE, DEFAULTS, DEPLOY, END_SECONDS, seconds
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server

# Compose's own, by the Apache License 2.0 next to it; as the npm package dclint 3.1.0 has it.
SCHEMA = json.loads((Path(__file__).parent / "compose_spec" / "compose-spec.json").read_text())
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("foretell", "foretell-cpu")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
# Programs of health checks: the image's and Compose's.
PROBES = [
    json.loads(re.findall(r"^ *CMD (\[.*urlopen.*\])$", DOCKERFILE, re.MULTILINE)[0]),
    SERVICES["foretell"]["healthcheck"]["test"],
]


def test_file_is_valid() -> None:
    jsonschema_rs.validator_for(SCHEMA).validate(COMPOSE)


@pytest.mark.parametrize(
    ("profile", "started"),
    [
        ("cpu", {"foretell-cpu", "prometheus", "grafana"}),
        ("gpu", {"foretell", "prometheus", "grafana"}),
        # Without a profile nothing starts that needs a GPU.
        (None, set()),
    ],
)
def test_profile_starts_its_services(profile: str | None, started: set[str]) -> None:
    profiles = {name: service.get("profiles", [profile]) for name, service in SERVICES.items()}
    assert {name for name, own in profiles.items() if profile in own} == started


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_limited_and_pinned(name: str) -> None:
    service = SERVICES[name]
    assert {"cpus", "mem_limit", "pids_limit"} <= set(service)
    assert {"max-size", "max-file"} == set(service["logging"]["options"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    # Other hosts have no access by default.
    for port in service["ports"]:
        assert re.match(r"127\.0\.0\.1:|\$\{ADDRESS:-127\.0\.0\.1\}:", port), port
    build = service.get("build")
    [base] = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    image = base if build else service["image"]
    assert re.search(r":v?\d+\.\d+\.\d+(-[a-z-]+)?@sha256:[0-9a-f]{64}$", image)
    if build:
        assert f"AS {build['target']}\n" in DOCKERFILE
        assert "\nFROM ${BASE} AS base\n" in DOCKERFILE


@pytest.mark.parametrize("name", SERVICES)
def test_mounts_exist_and_are_read_only(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
        source = volume["source"] if isinstance(volume, dict) else volume.partition(":")[0]
        if source in COMPOSE["volumes"]:
            continue
        source = re.sub(r"\$\{\w+:-(.+)\}", r"\1", source)
        # `make demo` fills it.
        assert (ROOT / source).exists() or source == "./.demo/repository", source
        assert volume["read_only"] if isinstance(volume, dict) else volume.endswith(":ro")


@pytest.mark.parametrize("name", OURS)
def test_limits_and_paths_agree_with_the_settings(name: str) -> None:
    service = SERVICES[name]
    own = service["environment"]
    published = [int(port.rpartition(":")[2]) for port in service["ports"]]
    assert published == [own["FORETELL_PORT"], own["FORETELL_OPERATIONS_PORT"]]
    assert own["FORETELL_HOST"] == "::"
    targets = {volume["source"]: volume["target"] for volume in service["volumes"]}
    assert own["FORETELL_MODELS"] in targets.values()
    [keys] = [target for source, target in targets.items() if "KEYS" in source]
    environment = (DEPLOY / "foretell.env").read_text()
    files = re.findall(r"^#FORETELL_\w+_KEYS_FILE=(.+)/", environment, re.MULTILINE)
    assert files == 4 * [keys]
    # Accepted requests are answered before Docker kills the container.
    needed = DEFAULTS.drain_delay_seconds + DEFAULTS.grace_seconds + END_SECONDS
    assert seconds(service["stop_grace_period"]) >= needed


def test_every_variable_is_explained() -> None:
    head = re.match(r"(#.*\n)+", TEXT)
    assert head is not None
    used = set(re.findall(r"\$\{(\w+):-[^}]*\}", TEXT))
    assert used == set(re.findall(r"\$\{(\w+)", TEXT)), "one has no default"
    assert used <= set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", head[0]))


def test_storage_of_prometheus_is_a_bounded_volume() -> None:
    service = SERVICES["prometheus"]
    options = dict(option.split("=") for option in service["command"])
    assert f"prometheus:{options['--storage.tsdb.path']}" in service["volumes"]
    assert {"--storage.tsdb.retention.time", "--storage.tsdb.retention.size"} < set(options)


@pytest.mark.parametrize(("damaged", "statuses"), [(False, (0, 0)), (True, (0, 1))])
def test_probes(damaged: bool, statuses: tuple[int, int], tmp_path: Path) -> None:
    """The image checks liveness, because failures may kill the container; Compose, which kills
    nothing, checks that every model answers."""
    write_bundle(tmp_path, Spec())
    if damaged:
        (write_bundle(tmp_path, Spec(name="other")) / "weights.bin").write_bytes(b"")
    with Server(tmp_path, tmp_path / "log") as server:
        port = server.url.rpartition(":")[2]
        done = [
            subprocess.run(
                [sys.executable, "-c", code[-1].replace("8001", port)],
                env={"FORETELL_PORT": port, "FORETELL_HOST": "::"},
                capture_output=True,
                text=True,
                check=False,
            )
            for code in PROBES
        ]
    assert tuple(one.returncode for one in done) == statuses, done
    # `docker inspect` shows the reason.
    assert ("other" in done[1].stdout) == damaged
