"""Texts of clients that no database stores are refused, and are no failure of the database."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from foretell.service.errors import ServiceError
from tests.service.ledger.conftest import CONTEXT, Open, counted, forecast, series_of
from tests.service.ledger.sending import hours_from_start, post, refused, written

LONG = "".join(map(chr, np.random.default_rng(0).integers(0x4E00, 0x9FFF, 501)))
NUL = "a\0b"


def test_reads_of_texts_with_a_null_character(database: str, opened: Open) -> None:
    windows = {
        "accuracy": ("version", "series", "channel", "calibration", "frequency"),
        "trajectories": ("series",),
        "compare": ("a", "b", "series"),
    }
    required = {"accuracy": {}, "trajectories": {"series": "a"}, "compare": {"a": "1", "b": "2"}}
    with opened(database) as client:
        forecast(client, series_of("a", np.zeros(CONTEXT)))
        for route, names in windows.items():
            for name in names:
                given = required[route] | {name: "a%00b"}
                query = "&".join(f"{key}={value}" for key, value in given.items())
                answer = client.get(f"/models/calibrated/{route}?{query}")
                message, param = refused(answer)
                assert (answer.status_code, param) == (422, name)
                assert message.startswith("expected at most 500 characters and no null character")
        assert client.get("/models/a%00b/accuracy").status_code == 404
        answer = client.request("DELETE", "/ledger/series?name=a%00b")
        assert (answer.status_code, refused(answer)[1]) == (422, "name")


@pytest.mark.parametrize("name", [NUL, LONG])
def test_actual_values_of_a_name_that_cannot_be_stored(
    database: str, opened: Open, name: str
) -> None:
    values = np.zeros(2)
    with opened(database) as client:
        answer = post(client, series_of("a", values), series_of(name, values))
        assert [output["status"] for output in answer.json()["outputs"]] == ["completed", "error"]
        message, param = refused(post(client, series_of(name, values)))
        assert "at most 500 characters" in message
        assert param == "inputs[0].name"
        columns = {"unique_id": ["b", name], "ds": hours_from_start(0, 0), "load": values}
        table = client.send_table(pa.table(columns), "/actuals?model=calibrated")
        outputs = table.json()["outputs"]
        assert [output["status"] for output in outputs] == ["completed", "error"]
        assert outputs[1]["error"]["param"] == "unique_id[1]"
        assert counted(client, "actuals", "new") == 3
        assert written(post(client, series_of(LONG[:500], values))) == [(2, 0, 0)]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_statement_that_the_database_refuses_is_not_its_failure(
    database: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(database) as client:
        forecast(client, series_of("a", np.zeros(CONTEXT)))
        with pytest.raises(ServiceError, match="its log says why") as raised:
            client.ledger.call(
                "accuracy", [{"model": "calibrated", "version": NUL}, "total", 1, math.inf], {}
            )
        assert raised.value.status == 500
        assert "the ledger failed" in caplog.text
