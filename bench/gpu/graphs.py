"""Every graph on onnxruntime's real CUDA provider, on the stand-in: `python -m bench.gpu.graphs`.

All sizes and variants, forecast and explain, in every precision: about fifteen minutes. Writes its
part of docs/gpu.md; exit status 1 if a graph is refused or wrong.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args

import onnx
import torch

from bench.gpu.report import PAGE
from bench.page import machine, table, write_part
from bench.sizes import SIZES, Size
from bench.stand_in.graphs import LARGEST
from bench.stand_in.log import forbidden, read
from bench.stand_in.machine import Machine, UnavailableError, build
from bench.variants import VARIANTS
from foretell.bundle.manifest import Precision, Scaler
from foretell.export.adversarial import adversarial
from foretell.export.errors import ExportError
from foretell.export.graphs import trace_all
from foretell.export.precision import reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.rules import RULES
from foretell.export.verification import Verified, verify
from foretell.export.window_set import WindowSet

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_WINDOWS, _ADVERSARIAL_WINDOWS = 32, 4
_TEXT = """\
## Every graph on the real provider, without a GPU

`make gpu-graphs` wrote this part, on onnxruntime's CUDA provider over a stand-in for CUDA's
libraries that keeps their rules and computes nothing. {machine}

Each graph is opened as a server opens it, without cuDNN, cuFFT and nvrtc: no node is off CUDA but
arithmetic on shapes, every size of batch up to {largest} windows is captured and replayed, and no
call disturbs a capture. Then the graph that onnxruntime has made of it for CUDA is run on the CPU
and compared with torch in float64 by the rules of the export; the table has the largest relative
error of a forecast. In half precision every result is rounded; models without a part that it is for
have no error there. What fails is named in the place of its error.

{rows}"""


@dataclass
class Finding:
    """One model in one precision.

    Attributes:
        name: Of the model.
        precision: Of its products.
        operators: That its graphs are made of.
        captured: By kind of graph, whether every size of batch replays.
        error: Largest of a forecast of the optimised graphs.
        left_out: Why there are no graphs, if so.
        faults: What is wrong.
    """

    name: str
    precision: Precision
    operators: set[str] = field(default_factory=set)
    captured: dict[str, bool] = field(default_factory=dict)
    error: float = 0.0
    left_out: str = ""
    faults: list[str] = field(default_factory=list)


def check(machine: Machine, size: Size, precisions: Iterable[Precision]) -> list[Finding]:
    """Look at the graphs of a model."""
    with tempfile.TemporaryDirectory() as name:
        findings = []
        for precision in precisions:
            folder = Path(name) / precision
            found = Finding(size.name, precision)
            try:
                graphs = write_graphs(size, precision, folder)
            except ExportError as error:
                # It has no part that the precision is for.
                found.left_out = str(error)
            else:
                look(
                    machine,
                    found,
                    graphs,
                    folder / "optimised",
                    partial(_verified, size, precision),
                )
            findings.append(found)
        return findings


def write_graphs(size: Size, precision: Precision, folder: Path) -> list[Path]:
    """Trace both graphs of a model, with random weights, into a folder."""
    folder.mkdir(parents=True)
    form = inference_form(size.model())
    reduce_precision(form, precision)
    graphs = trace_all(form, _scaler(size))
    for file, graph in graphs.items():
        onnx.save(graph, folder / file)
    return [folder / file for file in graphs]


def look(
    machine: Machine,
    found: Finding,
    graphs: Sequence[Path],
    folder: Path,
    verified: Callable[[Path], Verified],
) -> None:
    """Look at the graphs of one model.

    Args:
        machine: The stand-in.
        found: Gets what there is to tell.
        graphs: Of the forecast, and of the attention.
        folder: Takes what onnxruntime makes of them for CUDA, and the log.
        verified: Compares the graphs in a folder with the model.
    """
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    found.operators = {node.op_type for graph in graphs for node in onnx.load(graph).graph.node}
    for line in machine.run("bench.stand_in.graphs", *graphs, log=log).splitlines():
        said = json.loads(line)
        kind = Path(said["graph"]).stem
        found.captured[kind] = said.get("captured", False)
        if "refused" in said:
            found.faults.append(f"{kind}: {said['refused']}")
        elif not found.captured[kind]:
            found.faults.append(f"{kind}: not every size of batch was captured")
    if broken := forbidden(read(log)):
        found.faults.append(f"{len(broken)} calls were forbidden during a capture")
    if found.faults:
        return
    places = [place for graph in graphs for place in (graph, folder / graph.name)]
    machine.run("bench.stand_in.optimise", *places)
    compared = verified(folder)
    found.error = compared.largest_error
    found.faults += [
        f"{one.name}: error {one.max_error:.1e}, at most {one.tolerance:.0e} allowed"
        for one in compared.verification.checks
        if not one.passed
    ]


def _verified(size: Size, precision: Precision, folder: Path) -> Verified:
    windows, scaler = _windows(size), _scaler(size)
    few = windows.take(slice(_ADVERSARIAL_WINDOWS))
    kinds = adversarial(few, scaler, 0, size.config.observed_steps)
    return verify(size.model(), scaler, folder, windows, kinds, precision)


def _scaler(size: Size) -> Scaler:
    channels = size.config.channels
    return Scaler.identity(channels)


def _windows(size: Size) -> WindowSet:
    parts = [part.numpy() for part in size.inputs(_WINDOWS)]
    history, past, future = (*parts, None, None)[:3]
    return WindowSet("random", history, past, future)


def main() -> None:
    """Look at all of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.graphs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two models in float32")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    try:
        stand_in = build()
    except UnavailableError as error:
        raise SystemExit(f"gpu-graphs: {error}") from None
    findings: list[Finding] = []
    for size in VARIANTS[::8] if quick else (*SIZES, *VARIANTS):
        print(size.name, flush=True)
        found = check(stand_in, size, PRECISIONS[:1] if quick else PRECISIONS)
        for each in found:
            said = each.left_out or "; ".join(each.faults) or "passed"
            print(f"  {each.precision}: {said}", flush=True)
        findings += found
    text = report(findings)
    print(text) if quick else write_part("graphs", text, PAGE)
    raise SystemExit(any(found.faults for found in findings))


def report(findings: Sequence[Finding]) -> str:
    """The part of docs/gpu.md."""
    precisions = list(dict.fromkeys(found.precision for found in findings))
    errors: dict[str, dict[Precision, str]] = {}
    for found in findings:
        shown = "" if found.left_out else f"{found.error:.1e}"
        if found.faults:
            shown = f"**{'; '.join(found.faults)}**"
        errors.setdefault(found.name, {})[found.precision] = shown
    rows = [(name, *(by[one] for one in precisions)) for name, by in errors.items()]
    bounds = ("*allowed*", *(f"*{RULES[one].forecast:.1e}*" for one in precisions))
    return _TEXT.format(
        machine=machine("onnxruntime", "torch"),
        largest=LARGEST,
        rows=table(("model", *precisions), [*rows, bounds]),
    )


if __name__ == "__main__":
    main()
