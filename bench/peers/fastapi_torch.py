"""Serves the plain torch module; its argument is a checkpoint instead of a graph."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from fastapi_app import Rows, serve

from foretell.models.checkpoint import load

torch.set_num_threads(1)
model = load(Path(sys.argv[1])).model.eval()


def forecast(series: Rows) -> Rows:
    with torch.inference_mode():
        return model(torch.tensor([series]))[0].tolist()


serve(forecast, int(sys.argv[2]))
