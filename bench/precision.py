"""int8 and half precision against float32: `python -m bench.precision`.

Writes its part of docs/benchmarks.md; `--quick` measures two models for a moment and prints it.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

from bench.page import PAGE, machine, table, write_part
from bench.result import BATCHES
from bench.sizes import QUICK, SCALER, SIZES, Size
from bench.timing import interleaved_medians
from foretell.bundle.manifest import Precision
from foretell.bundle.measure import relative_error
from foretell.export.choices import Outputs, choices_differ
from foretell.export.graphs import trace_all
from foretell.export.precision import reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

FLOAT32, INT8, FLOAT16, BFLOAT16 = "float32", "int8", "float16", "bfloat16"
_HALVES: tuple[Precision, ...] = (FLOAT16, BFLOAT16)
_TIMED = (FLOAT32, INT8, FLOAT16)
_COMPARED = 64
_TEXT = """\
## Precision

`make bench-precision` wrote this part: each model in float32, with its matrix products in int8
(`onnxruntime.quantization.quantize_dynamic`, weights in int8, activations quantised as they come),
and in float16 and bfloat16 as `foretell export --precision` makes them. One thread; the columns
were measured in turns. Weights and windows are random.

{machine}

Milliseconds of a call. float16 is for GPUs: a CPU converts its numbers to float32 and back. Of
bfloat16 it has no kernels. Neither has been timed on a GPU yet.

{times}
Errors of the forecasts of {compared} windows against float32, relative to the largest value of a
window and channel: median and largest. float16 and bfloat16 are emulated as a GPU's matrix units
compute, with rounded operands and results and sums in float32. *Alone* is the largest difference
between the forecasts of a window alone and among {compared}. *Other lags* are the windows whose
auto-correlations keep other lags than in float32, which is what the largest errors come from.

{errors}
int8 is faster where matrix products are large, and not exported: `quantize_dynamic` takes one scale
for a whole batch, so that other windows of the batch change a forecast, and its error is one that
no check of an export lets pass.
"""


@dataclass
class _Measured:
    """Of one model: seconds by batch and precision, and what forecasts and lags differ by."""

    size: Size
    seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    other_lags: dict[str, float] = field(default_factory=dict)


def measure(size: Size, runtime: Runtime, folder: Path, seconds: float) -> _Measured:
    """Measure one model in all precisions."""
    form = inference_form(size.model())
    measured = _Measured(size)
    graphs = _export(size, folder)
    sessions = {name: runtime.open(graphs[name, "forecast"]) for name in _TIMED}
    names = ServingForm(form, SCALER, "forecast").input_names
    for batch in BATCHES:
        inputs = (part.numpy() for part in size.inputs(batch))
        feeds = dict(zip(names, inputs, strict=True))
        measured.seconds[batch] = _time(sessions, feeds, seconds)
    windows = [part.numpy() for part in size.inputs(_COMPARED)]
    exact = Graph(graphs[FLOAT32, "explain"]).run(windows)
    scale = np.ones(size.config.channels)
    for name in (INT8, *_HALVES):
        graph = Graph(graphs[name, "explain"])
        found = graph.run(windows)
        error = relative_error(_forecast(found), _forecast(exact), scale)
        measured.errors[name] = (float(np.median(error)), float(error.max()))
        alone = np.concatenate(
            [graph.forecast(*(part[row : row + 1] for part in windows)) for row in range(_COMPARED)]
        )
        measured.alone[name] = float(relative_error(alone, _forecast(found), scale).max())
        if any(stage.choices for stage in form.stages):
            differ = choices_differ(form.stages, found, exact)
            measured.other_lags[name] = float(differ.mean())
    return measured


def _export(size: Size, folder: Path) -> dict[tuple[str, str], Path]:
    """The graphs by precision and kind."""
    graphs = {}
    for precision in (FLOAT32, *_HALVES):
        form = inference_form(size.model())
        reduce_precision(form, precision)
        for file, graph in trace_all(form, SCALER).items():
            path = graphs[precision, Path(file).stem] = folder / f"{precision}-{file}"
            onnx.save(graph, path)
    for kind in ("forecast", "explain"):
        path = graphs[INT8, kind] = folder / f"{INT8}-{kind}.onnx"
        quantize_dynamic(graphs[FLOAT32, kind], path, weight_type=QuantType.QInt8)
    return graphs


def _time(
    sessions: Mapping[str, Session], feeds: dict[str, np.ndarray], seconds: float
) -> dict[str, float]:
    calls = {name: lambda session=session: session.run(feeds) for name, session in sessions.items()}
    return interleaved_medians(calls, seconds)


def _forecast(outputs: Outputs) -> np.ndarray:
    return outputs["forecast"].astype(np.float64)


def _text(results: list[_Measured]) -> str:
    times = table(
        ("model", "batch", *_TIMED, "int8, times as fast"),
        [
            (
                result.size.name,
                str(batch),
                *(f"{by[name] * 1e3:.2f}" for name in _TIMED),
                f"{by[FLOAT32] / by[INT8]:.2f}",
            )
            for result in results
            for batch, by in result.seconds.items()
        ],
    )
    errors = table(
        ("model", "precision", "median", "largest", "alone", "other lags"),
        [
            (
                result.size.name,
                name,
                *(f"{error:.1e}" for error in (*result.errors[name], result.alone[name])),
                f"{result.other_lags[name]:.0%}" if result.other_lags else "",
            )
            for result in results
            for name in result.errors
        ],
    )
    return _TEXT.format(
        machine=machine("onnxruntime"), times=times, errors=errors, compared=_COMPARED
    )


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two models, for a moment")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    # onnxruntime advises to simplify the graphs first; they are simple.
    logging.getLogger().setLevel(logging.ERROR)
    runtime = Runtime("cpu")
    results = []
    with tempfile.TemporaryDirectory() as name:
        for number, size in enumerate(QUICK if quick else SIZES):
            print(size.name, flush=True)
            folder = Path(name) / str(number)
            folder.mkdir()
            results.append(measure(size, runtime, folder, 0.5 if quick else 3))
    text = _text(results)
    if quick:
        print(text)
    else:
        write_part("precision", text)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
