"""The container's command, with the settings of its Deployment, ended as Kubernetes ends a Pod."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import yaml

from tests.deploy.kubernetes.manifests import FOLDER
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.support.waiting import until

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}

# As in a container whose root is read-only: the folder for temporary files is the only one.
READ_ONLY = """
import errno, os, sys

allowed = (os.environ["TMPDIR"] + "/", "/dev/", "/proc/")

def refuse(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.symlink"):
        path = arguments[0]
    else:
        return
    # Files without a name are opened by the folder's.
    if isinstance(path, str) and not f"{os.path.abspath(path)}/".startswith(allowed):
        os.write(2, f"wrote {path}\\n".encode())
        raise OSError(errno.EROFS, "read-only", path)

sys.addaudithook(refuse)
from foretell.__main__ import main
main()
"""


def variables() -> dict[str, str]:
    """Variables of the container: base/settings.env, which the overlay for CPUs does not change."""
    lines = (FOLDER / "base" / "settings.env").read_text().splitlines()
    own = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    # Addresses and paths of a container do not exist on this machine.
    places = ("FORETELL_HOST", "FORETELL_MODELS", "FORETELL_PORT", "FORETELL_OPERATIONS_PORT")
    return {name: value for name, value in own.items() if name not in places}


def test_deleted_pod_loses_no_request(tmp_path: Path) -> None:
    """Callers come over new connections until nodes have noticed."""
    # Slow enough for requests to be in all stages at any time.
    write_bundle(tmp_path / "models", Spec(burn=3))
    environment = {**os.environ, **variables(), "PYTHONDONTWRITEBYTECODE": "1"}
    with Server(
        tmp_path / "models",
        tmp_path / "log",
        code=READ_ONLY,
        environment={**environment, "PYTHONPATH": str(ROOT)},
        operations_port=0,
    ) as server:
        until(lambda: len(ADDRESS.findall(server.log)) == 2)
        url, operations = ADDRESS.findall(server.log)
        deployment = yaml.safe_load((FOLDER / "base" / "deployment.yaml").read_text())
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        ready = operations + container["readinessProbe"]["httpGet"]["path"]

        def ask(number: int) -> int:
            return httpx.post(f"{url}/forecast", json=BODY, timeout=60).status_code

        with ThreadPoolExecutor(4) as callers, httpx.Client(timeout=60) as kept:
            assert kept.post(f"{url}/forecast", json=BODY).status_code == 200
            assert httpx.get(ready).status_code == 200
            before = callers.map(ask, range(20))
            server.process.send_signal(signal.SIGTERM)
            until(lambda: httpx.get(ready).status_code == 503)
            late = callers.map(ask, range(20))
            assert kept.post(f"{url}/forecast", json=BODY).status_code == 200
            assert {*before, *late} == {200}
        assert server.wait() == 0
        # A container would refuse to write.
        assert not [line for line in server.log.splitlines() if "wrote" in line]
