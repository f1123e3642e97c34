"""The recipe of docs/guides/ray.md, on a cluster of two nodes of this machine."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, free_port
from tests.support.waiting import until

# A busy machine takes its time; Ray reads this when it is imported.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
with warnings.catch_warnings():
    # Warnings of Ray about pydantic do not matter here.
    warnings.simplefilter("ignore")
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        "RAY_RECIPE" not in os.environ,
        reason="Ray's proxies give up on a busy machine: RAY_RECIPE=1 has it run by itself",
    ),
]

PATIENCE = 120.0
NAMES = ("one", "two", "three")
BODY: dict[str, Any] = {"inputs": [{"series": [0.1, 2, 3, 4, 5, 6, 7, 8.25]}]}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Any, str]]:
    """Two nodes of a CPU each: the cluster, the node without the driver, and the server's URL."""
    for name in NAMES:
        write_bundle(tmp_path / "models", Spec(name=name))
    monkeypatch.setenv("FORETELL_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("FORETELL_LOAD", "on-demand")
    monkeypatch.setenv("FORETELL_MAX_LOADED", "8")
    monkeypatch.setenv("FORETELL_DEVICE", "cpu")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "ray"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "deploy" / "ray"))
    monkeypatch.delitem(sys.modules, "foretell_ray", raising=False)
    with tempfile.TemporaryDirectory(
        prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        Path(folder, "ray").mkdir()
        node = {"num_cpus": 1, "object_store_memory": 80 * 1024 * 1024}
        made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            other = made.add_node(**node)
            ray.init(address=made.address, log_to_driver=False, logging_level="error")
            import foretell_ray

            port = free_port()
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            serve.run(foretell_ray.app, route_prefix="/")
            yield made, other, f"http://127.0.0.1:{port}"
        finally:
            serve.shutdown()
            ray.shutdown()
            made.shutdown()


def ask(url: str, name: str) -> httpx.Response:
    headers = {"serve_multiplexed_model_id": name}
    body = {**BODY, "model": name}
    return httpx.post(f"{url}/forecast", json=body, headers=headers, timeout=PATIENCE)


def test_two_nodes_serve_and_load_each_model_once(cluster: tuple[Cluster, Any, str]) -> None:
    made, other, url = cluster
    loads = dict.fromkeys(NAMES, 0)
    for _ in range(10):
        for name in NAMES:
            answer = ask(url, name)
            assert answer.status_code == 200, answer.text
            assert answer.json()["model"] == name
            # Only requests that waited for a load have the header.
            loads[name] += "server-timing" in answer.headers
        # Replicas report their models to Ray ten times a second.
        time.sleep(0.2)
    assert loads == dict.fromkeys(NAMES, 1)
    assert ask(url, "four").json()["error"]["type"] == "unknown_model"
    made.remove_node(other)
    until(lambda: all(ask(url, name).status_code == 200 for name in NAMES))
