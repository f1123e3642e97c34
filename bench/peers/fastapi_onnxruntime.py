from __future__ import annotations

import sys

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from session import open_session


class Series(BaseModel):
    series: list[list[float]]


class Forecast(BaseModel):
    forecast: list[list[float]]


session = open_session(sys.argv[1])
app = FastAPI()


@app.get("/ready")
def ready() -> bool:
    return True


@app.post("/forecast")
def forecast(body: Series) -> Forecast:
    history = np.array([body.series], np.float32)
    return Forecast(forecast=session.run(None, {"history": history})[0][0].tolist())


uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
