"""The digest of the manifest: in every answer, in the descriptions of models, and in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from foretell.bundle import layout
from foretell.predict.in_process import OpenBundle
from tests.service.client import Client
from tests.service.forecast.bodies import notes_of, table_of
from tests.service.inference.bodies import binary, infer, joined, tensor
from tests.support.bundles import Spec, softmax_stage, write_bundle

ROWS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
BODY = {"inputs": [{"series": ROWS, "frequency": "H"}]}


def digest_of(bundle: Path) -> str:
    return f"sha256:{sha256((bundle / layout.MANIFEST).read_bytes()).hexdigest()}"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", Spec(calibrated=1, stages=(softmax_stage(),)))


@pytest.fixture
def client(bundle: Path, tmp_path: Path) -> Iterator[Client]:
    with Client(bundle.parents[1], ledger=f"sqlite:///{tmp_path / 'ledger.db'}") as client:
        yield client


def test_answers_have_the_digest(client: Client, bundle: Path) -> None:
    digest = digest_of(bundle)
    assert client.forecast(BODY).json()["model_digest"] == digest
    history = {"inputs": [{**BODY["inputs"][0], "series": [*ROWS, *ROWS]}]}
    assert client.request("POST", "/backtest", json=history).json()["model_digest"] == digest
    table = pa.table({"unique_id": ["a"] * 8, "load": ROWS})
    answer = table_of(client.send_table(table, "/forecast?model=repeat"))
    assert notes_of(answer)["model_digest"] == digest
    actual = {"name": "a", "series": ROWS, "start_timestamp": "2024-01-01"}
    body = {"model": "repeat", "inputs": [actual]}
    assert client.request("POST", "/actuals", json=body).json()["model_digest"] == digest


def test_answers_to_tensors_have_the_digest(client: Client, bundle: Path) -> None:
    rows = np.array(ROWS, np.float32).reshape(1, 8, 1)
    answer = infer(client, {"inputs": [tensor(rows)]}, model="repeat")
    assert answer.json()["parameters"] == {"model_digest": digest_of(bundle)}
    head = {"inputs": [binary(rows)], "parameters": {"binary_data_output": True}}
    content, headers = joined(head, rows)
    answer = infer(client, content, headers, model="repeat")
    size = int(answer.headers["inference-header-content-length"])
    assert json.loads(answer.content[:size])["parameters"] == {"model_digest": digest_of(bundle)}


def test_answers_to_the_nixtla_client_have_the_digest(client: Client, bundle: Path) -> None:
    series = {"y": ROWS * 2, "sizes": [16]}
    for path in ("forecast", "cross_validation"):
        body = {"series": series, "freq": "h", "h": 4, "model": "repeat"}
        answer = client.request("POST", f"/nixtla/v2/{path}", json=body)
        assert answer.json()["model_digest"] == digest_of(bundle)


def test_descriptions_have_the_digest(client: Client, bundle: Path) -> None:
    digest = digest_of(bundle)
    assert client.get("/models").json()[0]["digest"] == digest
    assert client.get("/models/repeat").json()["digest"] == digest
    assert client.get("/v2/models/repeat").json()["digest"] == digest
    parameters = client.get("/v2/models/repeat/config").json()["parameters"]
    assert parameters["digest"] == {"string_value": digest}


def test_logs_have_the_digest(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    digest = digest_of(bundle)
    with caplog.at_level("INFO"), Client(bundle.parents[1]) as client:
        client.forecast(BODY)
        client.get("/models")
    assert any(
        each.getMessage().startswith(f"loaded repeat@1 ({digest})") for each in caplog.records
    )
    lines = {
        each.fields["path"]: each.fields for each in caplog.records if each.name.endswith("access")
    }
    assert lines["/forecast"]["digest"] == digest
    assert "digest" not in lines["/models"]


def test_load_on_demand_logs_the_digest(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    digest = digest_of(bundle)
    with caplog.at_level("INFO"), Client(bundle.parents[1], load="on-demand") as client:
        assert client.forecast(BODY).json()["model_digest"] == digest
    messages = [each.getMessage() for each in caplog.records]
    assert any(each.startswith(f"read repeat@1 ({digest})") for each in messages)
    assert any(each.startswith(f"loaded repeat@1 ({digest})") for each in messages)


def test_rewritten_manifest_is_loaded_with_its_own_digest(client: Client, bundle: Path) -> None:
    before = digest_of(bundle)
    path = bundle / layout.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    assert digest_of(bundle) != before
    assert client.forecast(BODY).json()["model_digest"] == before
    client.repository.load("repeat", None)
    assert client.forecast(BODY).json()["model_digest"] == digest_of(bundle)


def test_client_shows_the_digest(bundle: Path) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=8, freq="h"), "load": ROWS})
    opened = OpenBundle(bundle)
    try:
        answer = opened.client.forecast_with_notes(frame)
        explained = opened.client.explain(frame)
        cards = opened.client.models()
    finally:
        opened.close()
    found = {answer.notes.model_digest, explained.model_digest, cards[0].digest}
    assert found == {digest_of(bundle)}
