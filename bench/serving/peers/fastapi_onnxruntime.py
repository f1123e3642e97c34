"""FastAPI around an onnxruntime session: `fastapi_onnxruntime.py GRAPH PORT`."""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Series(BaseModel):
    series: list[list[float]]


class Forecast(BaseModel):
    forecast: list[list[float]]


graph, port = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
app = FastAPI()


@app.get("/ready")
def ready() -> bool:
    return True


@app.post("/forecast")
def forecast(body: Series) -> Forecast:
    history = np.array([body.series], np.float32)
    return Forecast(forecast=session.run(None, {"history": history})[0][0].tolist())


uvicorn.run(app, port=int(port), log_level="warning")
