"""What a forecast costs in onnxruntime, at the length that was trained and at longer ones."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from bench.attention.subjects import CONTEXTS, HORIZON, REFERENCE, SIZES, settings
from bench.memory import peak_memory
from bench.results import Record
from bench.timing import Name, interleaved_medians
from foretell.bundle.manifest import Scaler
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.models.forecaster import ARCHITECTURES
from foretell.service.engine.runtime import Runtime

CHANNELS = 7
LENGTHS = (96, 336, 720, 1440, 4096)
# For twice as many steps, what is linear takes twice as long, and full attention four times.
HALF, WHOLE = LENGTHS[-1] // 2, LENGTHS[-1]
# One layer: at these lengths it is the attention that costs.
_LONG: dict[str, Any] = {"d_model": 64, "heads": 4, "d_ff": 128, "encoder_layers": 1, "label": 48}
SECONDS = 2.0


def trained_length(architecture: str, name: str) -> Record:
    """Of a model of the trained size."""
    return _measure(
        {"context": CONTEXTS[architecture], "horizon": HORIZON, **SIZES}, architecture, name
    )


def at_length(name: str, context: int) -> Record:
    """Of a Transformer with one encoder layer and so many steps of context."""
    return _measure({"context": context, "horizon": HORIZON, **_LONG}, "transformer", name)


def growth(name: str) -> Record:
    """Of such a Transformer: how many times as long twice as many steps take, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = {}
        for context in (HALF, WHOLE):
            graphs[context] = Path(folder) / f"{context}.onnx"
            sizes = {"context": context, "horizon": HORIZON, **_LONG}
            fields = settings("transformer", name, channels=CHANNELS, **sizes)
            write_graph(fields, graphs[context])
        seconds = median_seconds({context: (path, context) for context, path in graphs.items()})
    return {"grows": seconds[WHOLE] / seconds[HALF]}


def write_graph(fields: dict[str, Any], path: Path) -> None:
    """The forecast's graph of an untrained model of `CHANNELS` channels, by its config's fields."""
    torch.manual_seed(0)
    form = inference_form(ARCHITECTURES.read(fields).build().eval())
    scaler = Scaler.identity(CHANNELS)
    onnx.save(trace(ServingForm(form, scaler, "forecast")), path)


def median_seconds(graphs: Mapping[Name, tuple[Path, int]]) -> dict[Name, float]:
    """Of one window through each graph, which has so many steps of context, taken in turns."""
    runtime, random = Runtime("cpu"), np.random.default_rng(0)
    calls = {}
    for name, (path, context) in graphs.items():
        window = random.normal(size=(1, context, CHANNELS)).astype(np.float32)
        calls[name] = partial(runtime.open(path).run, {"history": window})
    return interleaved_medians(calls, SECONDS)


def _measure(sizes: dict[str, Any], architecture: str, name: str) -> Record:
    """Median milliseconds of one window, the reference's taken in turns with it, and peak MiB."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = {}
        for each in dict.fromkeys((name, REFERENCE)):
            graphs[each] = Path(folder) / f"{len(graphs)}.onnx"
            fields = settings(architecture, each, channels=CHANNELS, **sizes)
            write_graph(fields, graphs[each])
        seconds = median_seconds({each: (path, sizes["context"]) for each, path in graphs.items()})
        mib = {each: peak_memory(1, path) for each, path in graphs.items()}
        return {
            "ms": 1e3 * seconds[name],
            "times": seconds[name] / seconds[REFERENCE],
            "mib": mib[name],
            "of_memory": mib[name] / mib[REFERENCE],
        }
