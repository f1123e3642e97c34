from __future__ import annotations

from pathlib import Path

import pytest

from foretell.bundle import layout
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle


@pytest.mark.parametrize("keys", [(), ("secret",)])
def test_only_extensions_that_work_are_named(models: Path, keys: tuple[str, ...]) -> None:
    with Client(models, admin_keys=keys) as client:
        said = client.get("/v2").json()
    assert said["name"] == "foretell"
    assert said["extensions"] == [
        *("binary_tensor_data", "model_configuration", "statistics"),
        *(["model_repository"] if keys else []),
    ]


def test_health(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="good"))
    with Client(tmp_path) as client:
        for probe in ("live", "ready"):
            answer = client.get(f"/v2/health/{probe}")
            assert (answer.status_code, answer.json()) == (200, {"live": True, "ready": True})
        client.repository.drain()
        for probe, status in (("live", 200), ("ready", 503)):
            answer = client.get(f"/v2/health/{probe}")
            assert (answer.status_code, answer.json()) == (status, {"live": True, "ready": False})


def test_a_refused_bundle_is_not_ready(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="good"))
    (write_bundle(tmp_path, Spec(name="bad")) / layout.WEIGHTS).write_bytes(b"x")
    with Client(tmp_path) as client:
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/v2/models/good/ready").status_code == 200
        assert client.get("/v2/models/bad/ready").status_code == 503


def test_statistics_of_all_models(client: Client) -> None:
    found = client.get("/v2/models/stats").json()["model_stats"]
    loaded = [(model.name, model.version) for model in client.repository.registry.models]
    assert [(each["name"], each["version"]) for each in found] == loaded
    assert ("repeat", "1") in loaded
