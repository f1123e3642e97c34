"""`foretell serve --device cuda` on the stand-in: traffic, loads, lost and full GPUs."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import httpx
import pytest

from foretell.bundle import layout
from tests.gpu.conftest import FORECAST, Traffic, body_for, ready, refusal, serve
from tests.support.bundles import Spec, softmax_stage, write_bundle
from tests.support.process import ROOT, Server
from tests.support.stand_in.log import Call, forbidden, read
from tests.support.stand_in.machine import Machine
from tests.support.waiting import until

SIZES = 8
EXPLAIN = {**FORECAST, "options": {"attention": True}}
ADMIN = {"X-API-Key": "secret"}


def captures(calls: list[Call]) -> dict[int, int]:
    """Number of captured graphs by device."""
    assert forbidden(calls) == []
    return dict(Counter(call.device for call in calls if call.name == "end-capture"))


@pytest.mark.parametrize("count", [1, 4])
def test_every_model_is_captured_on_every_gpu_and_answers(
    stand_in: Machine, bundles: dict[str, Path], tmp_path: Path, count: int
) -> None:
    machine = Machine(stand_in.folder, count)
    repository = bundles["patchtst"].parent.parent
    bodies = [body_for(folder) for folder in bundles.values()]
    explained = [{**body, "options": {"attention": True}} for body in bodies]
    with serve(machine, repository, tmp_path) as server:
        assert ready(server)[0] == 200
        # Only graphs of forecasts: attention is rare, and runs without CUDA graphs.
        assert captures(read(tmp_path / "calls")) == dict.fromkeys(
            range(count), SIZES * len(bundles)
        )
        models = httpx.get(f"{server.url}/models").json()
        assert {model["provider"] for model in models} == {"CUDAExecutionProvider"}
        with Traffic(server.url, *bodies, *explained) as traffic:
            until(lambda: sum(traffic.answers.values()) > 100)
        assert {status for status, _ in traffic.answers} == {200}, traffic.answers
        assert server.stop() == 0
    calls = read(tmp_path / "calls")
    assert forbidden(calls) == []
    replays = Counter(call.device for call in calls if call.name == "replay")
    assert set(replays) == set(range(count))
    assert "WARNING" not in server.log.upper()


def test_only_forecasts_that_the_stand_in_cannot_compute_are_refused(
    stand_in: Machine, bundles: dict[str, Path], tmp_path: Path
) -> None:
    repository = bundles["patchtst"].parent.parent
    with pytest.raises(AssertionError, match="it does not serve") as refused:
        serve(stand_in, repository, tmp_path, module="foretell")
    assert captures(read(tmp_path / "calls")) == {0: SIZES * len(bundles)}
    for folder in bundles.values():
        differ = f"{folder / layout.FORECAST_GRAPH}: the probes' forecasts on CUDAExecutionProvider"
        assert f"{differ} differ" in str(refused.value)
    assert "without CUDA graphs" not in str(refused.value)


def deliver(models: Path, spec: Spec) -> None:
    folder = write_bundle(models.parent / "staging", spec)
    (models / spec.name).mkdir(exist_ok=True, parents=True)
    folder.rename(models / spec.name / spec.version)


def test_models_are_added_and_removed_under_traffic_without_a_failed_request(
    stand_in: Machine, bundles: dict[str, Path], tmp_path: Path
) -> None:
    count = 2
    machine = Machine(stand_in.folder, count)
    models = tmp_path / "models"
    stages = (softmax_stage(),)
    deliver(models, Spec(stages=stages))
    # A replaced version is closed when its last request would have timed out.
    settings = {"admin_keys": "secret", "versions": "latest", "timeout_seconds": 5}
    with (
        serve(machine, models, tmp_path, **settings) as server,
        Traffic(server.url, FORECAST, EXPLAIN) as traffic,
    ):

        def change(name: str, action: str) -> None:
            url = f"{server.url}/v2/repository/models/{name}/{action}"
            answer = httpx.post(url, headers=ADMIN, timeout=120)
            assert answer.is_success, answer.text

        for name, folder in bundles.items():
            shutil.copytree(folder, models / name / "1")
            change(name, "load")
        deliver(models, Spec(version="2", stages=stages))
        change("repeat", "load")
        until(lambda: "closed a model of repeat@1" in server.log)
        for name in bundles:
            change(name, "unload")
        for name in bundles:
            until(lambda name=name: f"closed a model of {name}@1" in server.log)
        for name in bundles:
            change(name, "load")
        before = sum(traffic.answers.values())
        until(lambda: sum(traffic.answers.values()) > before + 20)
        assert ready(server)[0] == 200
    # The stand-in device computes nothing: forecasts are what was left in its memory.
    failed = [error for _, error in traffic.answers if error and "is not finite" not in error]
    assert not failed, traffic.answers
    calls = read(tmp_path / "calls")
    loads = 1 + len(bundles) + 1 + len(bundles)
    assert captures(calls) == dict.fromkeys(range(count), SIZES * loads)
    assert "without CUDA graphs" not in server.log
    assert "could be captured" not in server.log


REPLACE_ME = 75
# More calls than a start makes, by kind.
STARTED = {"replay": 200, "copy": 3_000, "launch": 6_000}
# Attention launches kernels without CUDA graphs.
BODIES = {"replay": FORECAST, "copy": FORECAST, "launch": EXPLAIN}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec(stages=(softmax_stage(),)))
    return folder


def send(server: Server, count: int, body: object = FORECAST) -> Counter[int]:
    with httpx.Client(timeout=60) as client:
        answers = [client.post(f"{server.url}/forecast", json=body) for _ in range(count)]
    return Counter(answer.status_code for answer in answers)


@pytest.mark.parametrize(("what", "code"), [("replay", 700), ("copy", 719), ("launch", 700)])
def test_server_ends_when_its_only_gpu_is_lost(
    stand_in: Machine, models: Path, tmp_path: Path, what: str, code: int
) -> None:
    fake = {"fail": f"{what}:{STARTED[what]}:{code}"}
    with serve(stand_in, models, tmp_path, fake=fake) as server:
        assert ready(server) == (200, {"repeat@1": "ready"})
        error = refusal(server, BODIES[what])
        assert error["type"] == "device_lost"
        assert error["message"].startswith("GPU 0 is lost: ")
        # Callers and load balancers see the error before the server ends.
        try:
            assert ready(server) == (503, {"repeat@1": error["message"]})
        except httpx.TransportError:
            # The shutdown has begun.
            assert server.log.count("GPU 0 is lost")
        assert server.wait() == REPLACE_ME
    assert f"the process ends in 0 s with status {REPLACE_ME}, and must be replaced" in server.log
    assert "Traceback" not in server.log


@pytest.mark.parametrize(("what", "code"), [("replay", 719), ("copy", 700), ("launch", 719)])
def test_server_with_one_of_two_gpus_lost_answers_until_it_ends(
    stand_in: Machine, models: Path, tmp_path: Path, what: str, code: int
) -> None:
    machine = Machine(stand_in.folder, 2)
    fake = {"fail": f"{what}:{STARTED[what]}:{code}", "fail_device": 1}
    with serve(machine, models, tmp_path, fake=fake, grace_seconds=2) as server:
        error = refusal(server, BODIES[what])
        assert error["type"] == "device_lost"
        reason = error["message"]
        assert reason.startswith("GPU 1 is lost: ")
        # The other GPU still answers, and load balancers send no more requests.
        assert ready(server) == (503, {"repeat@1": reason})
        assert send(server, 30) == {200: 30}
        health = httpx.get(f"{server.url}/v2/health/ready")
        assert (health.status_code, health.json()["ready"]) == (503, False)
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert server.wait() == REPLACE_ME
    assert server.log.count("GPU 1 is lost") >= 1
    assert f"the process ends in 2 s with status {REPLACE_ME}, and must be replaced" in server.log
    assert "Traceback" not in server.log


@pytest.mark.parametrize(("what", "count"), [("replay", 2), ("copy", 1), ("launch", 2)])
def test_full_gpu_still_answers_what_fits(
    stand_in: Machine, models: Path, tmp_path: Path, what: str, count: int
) -> None:
    machine = Machine(stand_in.folder, count)
    fake = {"fail": f"{what}:{STARTED[what]}:2", "fail_device": count - 1}
    with serve(machine, models, tmp_path, fake=fake) as server:
        error = refusal(server, BODIES[what])
        assert error["type"] == "model_failed"
        answers = send(server, 40)
        if what == "launch":
            # Replays launch no kernels, so forecasts are answered.
            assert answers == {200: 40}
        assert set(answers) <= {200, 503}
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert server.stop() == 0
    assert "is lost" not in server.log


def test_model_on_a_full_gpu_is_tested_and_unready(
    stand_in: Machine, models: Path, tmp_path: Path
) -> None:
    fake = {"fail": f"replay:{STARTED['replay']}:2"}
    with serve(stand_in, models, tmp_path, fake=fake) as server:
        refusal(server)
        # Several failures in a row start the self-test.
        assert send(server, 3) == {503: 3}
        until(lambda: ready(server)[0] == 503)
        assert "out of memory" in ready(server)[1]["repeat@1"]
        assert send(server, 3) == {503: 3}
        assert server.stop() == 0


@pytest.mark.parametrize("fail", ["replay:1", "copy:1", "launch:2", "malloc:5"])
def test_gpu_lost_during_the_start(
    stand_in: Machine, models: Path, tmp_path: Path, fail: str
) -> None:
    """The server has no GPU, logs that, and ends with an error.

    Freeing memory of such a GPU would abort the process.
    """
    ran = subprocess.run(
        [
            stand_in.python,
            "-m",
            "tests.support.stand_in.foretell",
            "serve",
            "--models",
            models,
            "--port",
            "0",
        ],
        cwd=ROOT,
        env=stand_in.environment(fail=f"{fail}:700") | {"FORETELL_DEVICE": "cuda"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert "no bundle could be loaded" in ran.stderr
    assert "GPU 0 is lost: " in ran.stderr


def allocations_of_a_start(machine: Machine, models: Path, folder: Path) -> int:
    folder.mkdir()
    with serve(machine, models, folder) as server:
        return sum(call.name == "malloc" for call in read(folder / "calls")) + bool(server.stop())


@pytest.mark.parametrize(("code", "kind"), [(2, "model_failed"), (700, "device_lost")])
def test_no_memory_for_the_attention_graph(
    stand_in: Machine, models: Path, tmp_path: Path, code: int, kind: str
) -> None:
    """The error does not show whether the GPU is full or lost; the GPU itself does."""
    taken = allocations_of_a_start(stand_in, models, tmp_path / "before")
    fake = {"fail": f"malloc:{taken + 1}:{code}"}
    with serve(stand_in, models, tmp_path, fake=fake) as server:
        assert send(server, 20) == {200: 20}
        # Other requests run all the time: a server with a lost GPU is ready for a moment only.
        with Traffic(server.url, FORECAST) as traffic:
            refused = httpx.post(f"{server.url}/forecast", json=EXPLAIN, timeout=60)
            assert refused.status_code == 503
            if kind == "device_lost":
                until(lambda: any(kind in text for _, text in list(traffic.answers)))
        if code == 2:
            assert {status for status, _ in traffic.answers} == {200}
            assert send(server, 20) == {200: 20}
            assert server.stop() == 0
        else:
            assert server.wait() == REPLACE_ME


def test_engine_that_loses_its_gpu_is_replaced(
    stand_in: Machine, models: Path, tmp_path: Path
) -> None:
    fake = {"fail": f"replay:{STARTED['replay']}:700"}
    settings = {"workers": 2, "threads": 1}
    with serve(stand_in, models, tmp_path, fake=fake, **settings) as server:
        until(lambda: is_ready(server))
        until(lambda: server.log.count("Started server process") == 2)
        with Traffic(server.url, FORECAST):
            until(lambda: "another one takes its place" in server.log)
        until(lambda: is_ready(server))
        assert "a process of the server (engine) ended with status 75" in server.log
        # The HTTP workers were not replaced.
        assert server.log.count("Started server process") == 2
        assert server.stop() == 0


def is_ready(server: Server) -> bool:
    try:
        return ready(server)[0] == 200
    except httpx.TransportError:
        # Both processes may have ended.
        return False
