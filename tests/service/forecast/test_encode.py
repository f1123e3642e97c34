from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.backtest import BACKTESTING
from foretell.service.forecast.encode import encode as encode_with_headers
from foretell.service.forecast.encode import encoding_work
from foretell.service.forecast.job import Job
from foretell.service.forecast.parse import JsonCodec
from foretell.service.forecast.routes import BacktestCodec
from foretell.service.http.body import ALWAYS
from tests.service.client import Client, request_of
from tests.service.forecast.test_decode import EIGHT, PAIRS, job
from tests.support.bundles import Spec, write_bundle


def encode(request: Job, found: dict[str, np.ndarray[Any, Any]]) -> bytes:
    body, headers = encode_with_headers(request, found)
    assert headers == {"content-type": "application/json"}
    return body


def outputs(*windows: list[float]) -> dict[str, np.ndarray[Any, Any]]:
    return {"forecast": np.array(windows, np.float32)[:, :, None]}


def test_numbers_are_the_shortest_that_mean_the_same_float32(client: Client) -> None:
    answer = encode(job(client, {"series": EIGHT}), outputs([0.1, 1 / 3, 1e-20, 16777216]))
    assert b'"mean_forecast":[0.1,0.33333334,1e-20,16777216.0]' in answer


def test_the_answer(client: Client) -> None:
    request = job(client, {"name": "a", "series": EIGHT}, metadata={"k": [2**70]})
    answer = json.loads(encode(request, outputs([1, 2, 3, 4])))
    identifier = answer.pop("id")
    assert abs(answer.pop("created_at") - time.time()) < 60
    assert answer == {
        "status": "completed",
        "error": None,
        "model": "repeat",
        "model_version": "10",
        "metadata": {"k": [2**70]},
        "outputs": [
            {
                "type": "time_series_forecast",
                "id": f"{identifier}-0",
                "status": "completed",
                "error": None,
                "content": [
                    {
                        "type": "univariate_time_series",
                        "name": "a",
                        "mean_forecast": [1.0, 2.0, 3.0, 4.0],
                        "frequency": "H",
                        "start_timestamp": "",
                    }
                ],
            }
        ],
    }


def test_a_forecast_that_is_not_finite_is_an_error_of_its_series(client: Client) -> None:
    request = job(client, {"series": EIGHT}, {"series": EIGHT})
    answer = json.loads(encode(request, outputs([1, 2, 3, np.nan], [1, 2, 3, 4])))
    assert answer["status"] == "partial"
    first, second = answer["outputs"]
    assert (first["status"], first["content"]) == ("error", [])
    assert first["error"]["param"] == "inputs[0].series"
    assert first["error"]["code"] == "422"
    assert second["status"] == "completed"


def test_the_work_of_an_answer(client: Client) -> None:
    inputs = [{"series": PAIRS}] * 2
    values = outputs([1, 2, 3, 4], [1, 2, 3, 4])
    least = 32 + 2 * (4096 + len("series-0"))
    assert encoding_work(job(client, *inputs, model="multi"), values) == least
    explained = job(client, *inputs, model="multi", options={"attention": True})
    assert encoding_work(explained, values) == least + 4 * 2 * (18 + 64 + 36)


def test_times_are_work_where_their_offsets_differ(client: Client) -> None:
    work = []
    for zone in (None, "Europe/Berlin"):
        entry = {"series": EIGHT, "start_timestamp": "2024-01-01T00:00:00", "time_zone": zone}
        work.append(encoding_work(job(client, entry), outputs([1, 2, 3, 4])))
    assert work[1] == work[0] + 4 * 64


def test_nothing_finite(client: Client) -> None:
    request = job(client, {"series": EIGHT})
    with pytest.raises(InvalidInputError, match="not finite"):
        encode(request, outputs([np.inf, 2, 3, 4]))


def test_columns_come_back_in_the_order_they_came(client: Client) -> None:
    request = job(
        client,
        {"series": PAIRS, "channels": ["wind", "load"]},
        model="multi",
        options={"horizon": 1},
    )
    values = np.array([[[1, 2], [3, 4], [5, 6], [7, 8]]], np.float32)
    content = json.loads(encode(request, {"forecast": values}))["outputs"][0]["content"][0]
    assert content["channels"] == ["wind", "load"]
    assert content["mean_forecast"] == [[2.0, 1.0]]


@pytest.mark.parametrize(("margin", "flagged"), [(0.5e-5, True), (2e-5, False)])
def test_a_history_whose_lags_rounding_may_decide_is_flagged(
    tmp_path: Path, margin: float, flagged: bool
) -> None:
    write_bundle(tmp_path, Spec(margin_bound=1e-5))
    with Client(tmp_path) as client:
        content = client.first({"inputs": [{"series": [margin, *EIGHT[1:]]}]})
    assert content["ill_conditioned"] is flagged


def test_without_auto_correlation_there_is_no_such_flag(client: Client) -> None:
    answer = json.loads(encode(job(client, {"series": EIGHT}), outputs([1, 2, 3, 4])))
    assert "ill_conditioned" not in answer["outputs"][0]["content"][0]


def test_a_backtest_is_never_written_on_the_event_loop(client: Client) -> None:
    body = {"model": "repeat", "inputs": [{"series": [*EIGHT, 1, 2, 3, 4]}]}
    codec = BacktestCodec(JsonCodec(BACKTESTING, client.settings))
    parsed = codec.parse(json.dumps(body).encode(), request_of())
    backtest = codec.decode(parsed, client.repository.registry.find("repeat"))
    assert codec.encoding_work(backtest, outputs([1, 2, 3, 4])) == ALWAYS
