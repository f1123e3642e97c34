"""The application of the FastAPI scripts here: a list of rows in, a list of rows out."""

from __future__ import annotations

from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

Rows = list[list[float]]


class Series(BaseModel):
    series: Rows


class Forecast(BaseModel):
    forecast: Rows


def serve(run: Callable[[Rows], Rows], port: int) -> None:
    """Serve forecasts by a function of one series."""
    app = FastAPI()

    @app.get("/ready")
    def ready() -> bool:
        return True

    @app.post("/forecast")
    def forecast(body: Series) -> Forecast:
        return Forecast(forecast=run(body.series))

    uvicorn.run(app, port=port, log_level="warning")
