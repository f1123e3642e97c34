"""`foretell serve --device cuda` on the stand-in: start, traffic, models that come and go."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import httpx
import pytest

from foretell.bundle import layout
from tests.gpu.server import FORECAST, Traffic, body_for, ready, serve
from tests.support.bundles import Spec, softmax_stage, write_bundle
from tests.support.stand_in.log import Call, forbidden, read
from tests.support.stand_in.machine import Machine
from tests.support.waiting import until

SIZES = 8
ADMIN = {"X-API-Key": "secret"}


def captures(calls: list[Call]) -> dict[int, int]:
    """How many graphs were captured, by device."""
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
        # The forecasts' graphs: attention is asked for rarely, and runs without.
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


def test_only_the_numbers_that_the_stand_in_does_not_compute_are_refused(
    stand_in: Machine, bundles: dict[str, Path], tmp_path: Path
) -> None:
    repository = bundles["patchtst"].parent.parent
    with pytest.raises(AssertionError, match="no server") as refused:
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


def test_models_come_and_go_under_traffic_without_a_failed_request(
    stand_in: Machine, bundles: dict[str, Path], tmp_path: Path
) -> None:
    count = 2
    machine = Machine(stand_in.folder, count)
    models = tmp_path / "models"
    stages = (softmax_stage(),)
    deliver(models, Spec(stages=stages))
    explain = {**FORECAST, "options": {"attention": True}}
    # What is replaced is closed when its last request would have timed out.
    settings = {"admin_keys": "secret", "versions": "latest", "timeout_seconds": 5}
    with (
        serve(machine, models, tmp_path, **settings) as server,
        Traffic(server.url, FORECAST, explain) as traffic,
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
    assert {status for status, _ in traffic.answers} == {200}, traffic.answers
    calls = read(tmp_path / "calls")
    loads = 1 + len(bundles) + 1 + len(bundles)
    assert captures(calls) == dict.fromkeys(range(count), SIZES * loads)
    assert "without CUDA graphs" not in server.log
    assert "could be captured" not in server.log
