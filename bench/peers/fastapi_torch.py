"""The plain torch module: it takes the checkpoint in place of the graph."""

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


torch.set_num_threads(1)
model = load(Path(sys.argv[1])).model.eval()
app = FastAPI()


@app.get("/ready")
def ready() -> bool:
    return True


@app.post("/forecast")
def forecast(body: Series) -> Forecast:
    with torch.inference_mode():
        return Forecast(forecast=model(torch.tensor([body.series]))[0].tolist())


uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
