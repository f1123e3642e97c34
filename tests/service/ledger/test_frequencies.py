"""Versions whose frequencies have different names forecast the same series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, forecast, scores, series_of
from tests.support.bundles import Spec, write_bundle

TRUTH = np.random.default_rng(0).normal(size=20)


def test_names_of_a_frequency_are_one(tmp_path: Path, sqlite: str) -> None:
    for version, frequency in (("1", "h"), ("2", "60min")):
        spec = Spec(name="calibrated", version=version, frequency=frequency, calibrated=3)
        write_bundle(tmp_path, spec)
    with Client(tmp_path, ledger=sqlite) as client:
        for version in ("1", "2"):
            forecast(client, series_of("a", TRUTH[:CONTEXT]), model=f"calibrated@{version}")
        for version in ("1", "2"):
            body = {"model": f"calibrated@{version}", "inputs": [series_of("a", TRUTH)]}
            answer = client.request("POST", "/actuals", json=body)
            assert answer.status_code == 200, answer.text
        assert [row["version"] for row in scores(client)] == ["1", "2"]
        assert client.get("/models/calibrated/compare?a=1&b=2").json()["windows"] == 1
        for name in ("h", "H", "60min", "hour"):
            assert len(scores(client, f"?frequency={name}")) == 2
        assert scores(client, "?frequency=D") == []
        assert client.request("DELETE", "/ledger/series?name=a").json() == {"series": 1}


@pytest.mark.parametrize("path", ["accuracy?", "trajectories?series=a&", "compare?a=1&b=2&"])
def test_unknown_frequency_is_refused(tmp_path: Path, sqlite: str, path: str) -> None:
    write_bundle(tmp_path, Spec(name="calibrated"))
    with Client(tmp_path, ledger=sqlite) as client:
        answer = client.get(f"/models/calibrated/{path}frequency=hourly")
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["param"] == "frequency"
    assert "expected a frequency such as" in error["message"]
