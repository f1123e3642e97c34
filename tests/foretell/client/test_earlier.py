"""The client works with a server of the previous version, run from the repository's history."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell import Client
from foretell.client import InvalidInputError, PartialForecastError
from tests.support.process import ROOT, Server

# The last commit before there was a client.
BEFORE = "affe513"
BUNDLES = """
import sys
from pathlib import Path
from tests.service.bundles import Spec, lag_stage, softmax_stage, write_bundle
stages = (softmax_stage(), lag_stage())
write_bundle(Path(sys.argv[1]), Spec(name="load", calibrated=3, stages=stages))
write_bundle(Path(sys.argv[1]), Spec(name="two", channels=("load", "wind")))
"""
HOURS = pd.date_range("2024-03-01", periods=40, freq="h", name="at")
FRAME = pd.DataFrame({"load": np.sin(np.arange(40))}, HOURS)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    if sys.version_info >= (3, 14):
        pytest.skip(f"{BEFORE} does not run on this Python")
    code = tmp_path / "code"
    packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"this clone has not the history back to {BEFORE}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(code, filter="tar")
    environment = {**os.environ, "PYTHONPATH": str(code)}
    subprocess.run(
        [sys.executable, "-c", BUNDLES, tmp_path / "models"], cwd=code, env=environment, check=True
    )
    with (
        Server(
            tmp_path / "models", tmp_path / "log", environment=environment, folder=code
        ) as server,
        Client(server.url) as client,
    ):
        yield client


def test_client_understands_an_earlier_server(client: Client) -> None:
    assert [card.name for card in client.models()] == ["load", "two"]
    card = client.model("two")
    assert (card.targets, card.verdict) == (("load", "wind"), None)
    found = client.forecast(FRAME, model="load", quantiles=[0.9], horizon=2)
    assert found["load"].tolist() == [np.float32(FRAME["load"].iloc[-1])] * 2
    assert found.index[0] == HOURS[-1] + pd.Timedelta(hours=1)
    series = pd.concat([FRAME.assign(unique_id=1), FRAME.tail(3).assign(unique_id=2)])
    with pytest.raises(PartialForecastError, match=r"^unique_id\[40\]: series 2 has no forecast"):
        client.forecast(series, model="load")
    with pytest.raises(InvalidInputError, match=r"^horizon: expected at most 16"):
        client.forecast(FRAME, model="load", horizon=17)
    backtest = client.backtest(FRAME, model="load", quantiles=[0.1, 0.9])
    assert backtest.frame["origins"].tolist() == [8]
    explanation = client.explain(FRAME, model="load", heads="mean")
    assert [stage.form for stage in explanation.stages] == ["dense", "circulant"]
