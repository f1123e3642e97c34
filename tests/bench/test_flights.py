"""A panel of real series, from a file to forecasts of all of them in one request."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import ipc

from bench.flights import MODEL, departures, request_of, text
from foretell.bundle.manifest import read
from foretell.commands.train_options import arguments_of
from foretell.export.write import export_checkpoint
from foretell.models.data import reading
from foretell.models.training.config import TrainingConfig
from foretell.models.training.progress import Progress
from foretell.models.training.train import train
from tests.service.client import Client

ROUTES = ("EWR-ALB", "EWR-ANC", "JFK-ACK", "JFK-BOS", "LGA-ATL", "LGA-LEX")


class Listener(Progress):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    data = departures()
    return data[data["unique_id"].isin(ROUTES)]


def test_the_data_are_days_of_routes(flights: pd.DataFrame) -> None:
    days = flights.groupby("unique_id")["ds"].agg(["min", "max", "size"])
    assert ((days["max"] - days["min"]).dt.days + 1 == days["size"]).all()
    assert days["size"].to_dict() == {
        "EWR-ALB": 365,
        "EWR-ANC": 50,
        "JFK-ACK": 163,
        "JFK-BOS": 365,
        "LGA-ATL": 365,
        "LGA-LEX": 1,
    }


def test_all_series_are_forecast_by_one_request(flights: pd.DataFrame, tmp_path: Path) -> None:
    file, repository = tmp_path / "flights.csv", tmp_path / "models"
    flights.to_csv(file, index=False)
    settings = MODEL | {"epochs": 1, "d_model": 8, "d_ff": 8, "encoder_layers": 1}
    listener = Listener()
    info = train(
        TrainingConfig.model_validate(arguments_of(settings)),
        reading.read(file),
        tmp_path / "flights",
        progress=listener,
    ).info
    assert info.data is not None
    assert info.data.series == 6
    assert [said for said in listener.warnings if "left out" in said] == [
        "too short for a window, left out: 2 series: EWR-ANC, LGA-LEX"
    ]
    export_checkpoint(tmp_path / "flights", repository)
    request = request_of(flights)
    with Client(repository) as client:
        path = f"/forecast?quantiles={request.query['quantiles']}"
        headers = {"Content-Type": request.media_type}
        answer = client.request("POST", path, content=request.body, headers=headers).content
    found = ipc.open_stream(answer).read_all()
    assert found.column_names == ["unique_id", "ds", "y", "y_q0.1", "y_q0.9"]
    frame = found.to_pandas()
    assert frame.groupby("unique_id").size().to_dict() == dict.fromkeys(
        ("EWR-ALB", "JFK-ACK", "JFK-BOS", "LGA-ATL"), 7
    )
    ends = flights.groupby("unique_id")["ds"].max()
    assert (frame.groupby("unique_id")["ds"].min() - ends).dropna().eq(pd.Timedelta(days=1)).all()
    assert np.isfinite(frame["y"]).all()
    errors = json.loads(found.schema.metadata[b"foretell"])["errors"]
    assert {error["unique_id"] for error in errors} == {"EWR-ANC", "LGA-LEX"}
    page = text(flights, read(repository / "flights" / "1"), (500, 9), (400, 3), answer, 0.0123)
    assert "6 series of 1 to\n365 days" in page
    assert "answered in 12 ms, with forecasts and intervals of 4 routes; the other\n2 have" in page
