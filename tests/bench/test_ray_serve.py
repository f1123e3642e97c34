from __future__ import annotations

import time
import warnings
from pathlib import Path

import httpx
import numpy as np
import pytest

from bench import waiting
from bench.waiting import WaitingRuntime
from tests.service.bundles import Spec, write_bundle

with warnings.catch_warnings():
    # What Ray does with pydantic is none of our doing.
    warnings.simplefilter("ignore")
    from bench.ray_serve import Load


def answer(value: float) -> httpx.Response:
    content = [{"mean_forecast": [value] * 4}]
    return httpx.Response(200, json={"outputs": [{"content": content}]})


def test_answers_are_checked() -> None:
    load = Load("http://service/forecast")
    assert load._take(7.0, answer(7.0))
    assert load.wrong == 0
    assert load._take(7.0, answer(8.0))
    assert load.wrong == 1
    assert not load._take(7.0, httpx.Response(503, headers={"Retry-After": "1"}))
    assert load.again == 1
    for other in (httpx.Response(503), httpx.Response(500), "ReadError"):
        assert not load._take(7.0, other)
    assert load.failed == {"503": 1, "500": 1, "ReadError": 1}
    assert (load.wrong, load.again) == (1, 1)


def test_what_came_is_counted_by_its_time() -> None:
    load = Load("")
    now = time.monotonic()
    load.answers = [(now - 100.0, 1.0), (now, 3.0), (now, 2.0)]
    assert load.since(now - 50.0) == [2.0, 3.0]
    assert load.pace(50.0) == pytest.approx(2 / 50)


def test_a_device_that_waits_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    folder = write_bundle(tmp_path, Spec())
    session = WaitingRuntime("cpu").open(folder / "forecast.onnx")
    found = session.run({"history": np.full((3, 8, 1), 5.0, np.float32)})
    assert found["forecast"].tolist() == [[[5.0]] * 4] * 3
    assert 0 <= slept[0] <= waiting.BATCH_SECONDS
    waiting.waiting(session, 40.0, 100.0).run({"history": np.ones((3, 8, 1), np.float32)})
    assert 300 < slept[-1] <= 340
    session.close()
