"""The graphs of a model on the stand-in: placed, captured, replayed, and their optimised form."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import onnx

from foretell.bundle.results import Precision
from foretell.bundle.scaler import Scaler
from foretell.export.adversarial import adversarial
from foretell.export.errors import ExportError
from foretell.export.graphs import trace_all
from foretell.export.precision import reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.verification import Verified, verify
from foretell.export.window_set import WindowSet
from tests.support.stand_in.log import forbidden, read
from tests.support.stand_in.machine import Machine
from tests.support.variants import Size

_WINDOWS, _ADVERSARIAL_WINDOWS = 32, 4


@dataclass
class Finding:
    """One model in one precision.

    Attributes:
        name: Name of the model.
        precision: Precision of its products.
        operators: Operators of its graphs.
        captured: Whether every size of batch replays, by kind of graph.
        error: Largest error of a forecast of the optimised graphs.
        left_out: Reason if there are no graphs.
        faults: Messages about faults.
    """

    name: str
    precision: Precision
    operators: set[str] = field(default_factory=set)
    captured: dict[str, bool] = field(default_factory=dict)
    error: float = 0.0
    left_out: str = ""
    faults: list[str] = field(default_factory=list)


def check(machine: Machine, size: Size, precisions: Iterable[Precision]) -> list[Finding]:
    """Check the graphs of a model."""
    findings = []
    for precision in precisions:
        found = Finding(size.name, precision)
        findings.append(found)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / precision
            try:
                graphs = write_graphs(size, precision, folder)
            except ExportError as error:
                # The precision would not change this model.
                found.left_out = str(error)
                continue
            verified = partial(_verified, size, precision)
            look(machine, found, graphs, folder / "optimised", verified)
    return findings


def write_graphs(size: Size, precision: Precision, folder: Path) -> list[Path]:
    """Trace both graphs of a model, with random weights, into a folder."""
    folder.mkdir(parents=True)
    form = inference_form(size.model())
    reduce_precision(form, precision)
    graphs = trace_all(form, Scaler.identity(size.config.channels))
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
    """Check the graphs of one model.

    Args:
        machine: The stand-in.
        found: Where the results are written.
        graphs: Graphs of the forecast and of the attention.
        folder: Where onnxruntime's optimised graphs and the log are written.
        verified: Compares the graphs in a folder with the model.
    """
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    found.operators = {node.op_type for graph in graphs for node in onnx.load(graph).graph.node}
    for line in machine.run("tests.support.stand_in.graphs", *graphs, log=log).splitlines():
        result = json.loads(line)
        kind = Path(result["graph"]).stem
        found.captured[kind] = result.get("captured", False)
        if "refused" in result:
            found.faults.append(f"{kind}: {result['refused']}")
        elif not found.captured[kind]:
            found.faults.append(f"{kind}: not every size of batch was captured")
    if broken := forbidden(read(log)):
        found.faults.append(f"{len(broken)} calls were forbidden during a capture")
    if found.faults:
        return
    places = [place for graph in graphs for place in (graph, folder / graph.name)]
    machine.run("tests.support.stand_in.optimise", *places)
    compared = verified(folder)
    found.error = compared.largest_error
    found.faults += [
        f"{one.name}: error {one.max_error:.1e}, at most {one.tolerance:.0e} allowed"
        for one in compared.verification.checks
        if not one.passed
    ]


def _verified(size: Size, precision: Precision, folder: Path) -> Verified:
    windows = WindowSet.of("random", size.inputs(_WINDOWS))
    scaler = Scaler.identity(size.config.channels)
    few = windows.take(slice(_ADVERSARIAL_WINDOWS))
    kinds = adversarial(few, scaler, 0, size.config.observed_steps)
    return verify(size.model(), scaler, folder, windows, kinds, precision)
