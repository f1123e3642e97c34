"""The container's command, with the settings of its Deployment, ended as Kubernetes ends a Pod."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml

from tests.deploy.kubernetes.manifests import FOLDER
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.support.waiting import until

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}
# Slow enough for requests to be in all stages at any time.
SPEC = Spec(burn=3)
# So many requests go to it, over new connections, before nodes have noticed.
LATE = 5

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
    """Those of the container: base/settings.env, which the overlay for CPUs leaves as it is."""
    lines = (FOLDER / "base" / "settings.env").read_text().splitlines()
    own = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    # Addresses and paths are the machine's, not the container's.
    places = ("FORETELL_HOST", "FORETELL_MODELS", "FORETELL_PORT", "FORETELL_OPERATIONS_PORT")
    return {name: value for name, value in own.items() if name not in places}


class Pod:
    """A server with the ports that probes and callers ask."""

    def __init__(self, models: Path, folder: Path) -> None:
        folder.mkdir()
        environment = {**os.environ, **variables(), "PYTHONDONTWRITEBYTECODE": "1"}
        self.server = Server(
            models,
            folder / "log",
            code=READ_ONLY,
            environment={**environment, "PYTHONPATH": str(ROOT)},
            operations_port=0,
        )
        pattern = r"http://127\.0\.0\.1:\d+"
        until(lambda: len(re.findall(pattern, self.server.log)) == 2)
        self.url, self.operations = re.findall(pattern, self.server.log)

    @property
    def ready(self) -> bool:
        [container] = yaml.safe_load((FOLDER / "base" / "deployment.yaml").read_text())["spec"][
            "template"
        ]["spec"]["containers"]
        path = container["readinessProbe"]["httpGet"]["path"]
        return httpx.get(self.operations + path, verify=False).status_code == 200


class Callers:
    """Callers who keep connections, and ask whichever Pods are on the Service's list.

    Attributes:
        pods: The list.
        answers: By address and status, or what else came.
    """

    def __init__(self, pods: list[Pod]) -> None:
        self.pods = pods
        self.answers: Counter[tuple[str, object]] = Counter()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(own,)) for own in range(4)]

    def _ask(self, own: int) -> None:
        with httpx.Client(timeout=60, verify=False) as client:
            while not self._done.is_set():
                own += 1
                pod = self.pods[own % len(self.pods)]
                self.answers[pod.url, ask(client, pod)] += 1

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(60)


def ask(client: httpx.Client, pod: Pod) -> object:
    """The status of a forecast, or what went wrong on the way."""
    try:
        status: int = client.post(f"{pod.url}/forecast", json=BODY).status_code
    except httpx.TransportError as error:
        return repr(error)
    return status


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list[Pod]]:
    write_bundle(tmp_path / "models", SPEC)
    with ExitStack() as stack:
        started: list[Pod] = []
        for name in ("one", "two"):
            started.append(Pod(tmp_path / "models", tmp_path / name))
            stack.enter_context(started[-1].server)
        yield started


def end(pod: Pod, callers: Callers) -> list[object]:
    """End a Pod as Kubernetes does: it is told to, and callers hear of it late.

    Returns:
        What those got who came meanwhile.
    """
    pod.server.process.send_signal(signal.SIGTERM)
    until(lambda: not pod.ready)
    late = []
    for _ in range(LATE):
        with httpx.Client(timeout=60, verify=False) as client:
            late.append(ask(client, pod))
    callers.pods = [other for other in callers.pods if other is not pod]
    return late


def test_no_request_is_lost_when_a_pod_goes(pods: list[Pod]) -> None:
    going, staying = pods
    with Callers(pods) as callers:
        until(lambda: all(callers.answers[pod.url, 200] > 3 for pod in pods))
        assert end(going, callers) == [200] * LATE
        assert going.server.wait() == 0
        before = callers.answers[staying.url, 200]
        until(lambda: callers.answers[staying.url, 200] > before + 3)
    assert set(callers.answers) == {(pod.url, 200) for pod in pods}, callers.answers
    assert staying.ready
    # In a container it would have been refused.
    assert not [line for pod in pods for line in pod.server.log.splitlines() if "wrote" in line]
