"""FastAPI around the plain torch module: `fastapi_torch.py CHECKPOINT PORT`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from foretell.models.checkpoint import load


class Series(BaseModel):
    series: list[list[float]]


class Forecast(BaseModel):
    forecast: list[list[float]]


checkpoint, port = sys.argv[1:]
torch.set_num_threads(1)
model = load(Path(checkpoint)).model.eval()
app = FastAPI()


@app.get("/ready")
def ready() -> bool:
    return True


@app.post("/forecast")
def forecast(body: Series) -> Forecast:
    with torch.inference_mode():
        return Forecast(forecast=model(torch.tensor([body.series]))[0].tolist())


uvicorn.run(app, port=int(port), log_level="warning")
