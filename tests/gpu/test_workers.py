"""The bench of two HTTP workers before a GPU, for a moment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bench.server
from bench.gpu import workers
from bench.serving.contenders import ROOT
from bench.serving.subjects import NAME, SUBJECTS, Subject
from bench.stand_in.machine import Machine
from tests.support.bundles import Spec, write_bundle


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_workers_are_loaded_in_json_and_in_binary(
    stand_in: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.server, "_FEWEST_TURNS", 1)
    monkeypatch.setattr(workers, "_BINARY_WINDOWS", (8,))
    repository = tmp_path / "models"
    write_bundle(repository, Spec(name=NAME, context=24))
    windows = np.random.default_rng(0).normal(size=(8, 24, 1)).astype(np.float32)
    unused = tmp_path / "unused"
    subject = Subject(NAME, SUBJECTS[0], repository, unused, unused, windows, windows[0])
    with workers.start(stand_in, {"ours": (ROOT, repository)}, 1000, tmp_path) as servers:
        workers.measure_json(servers, subject, tmp_path, 1)
        workers.measure_binary(servers, subject, tmp_path, 1)
    (server,) = servers
    assert server.json is not None
    assert server.json.rate > 0
    assert 1 <= server.batch <= 64
    # It works for both HTTP workers; their parent would have next to nothing to do.
    assert server.engine is not None
    assert server.engine > 0
    # What runs models is larger than what has none.
    assert 2**20 < server.memory[0] < server.memory[1]
    assert server.binary[8] > 0
    assert server.failed == 0
    ((name, *_, failed),) = workers._rows(servers, servers)
    assert (name, failed) == ("ours", "0")
    body, headers = workers.binary_request(subject, 8, tmp_path)
    size = int(headers["Inference-Header-Content-Length"])
    (tensor,) = json.loads(body.read_bytes()[:size])["inputs"]
    values = np.frombuffer(body.read_bytes()[size:], np.float32).reshape(tensor["shape"])
    assert np.array_equal(values, subject.windows[:8])
