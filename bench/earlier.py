"""Our graphs beside those of an earlier version: `python -m bench.earlier COMMIT`; two minutes.

Each version exports its models in its own tree, with random weights, which have no influence on the
time. Prints how many times as long as the earlier graphs ours take, in turns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.page import machine, table
from bench.serving.before import checkout, run_in
from bench.serving.contenders import ROOT
from bench.sizes import QUICK, SIZES, Size
from bench.timing import Call, interleaved_medians
from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

BATCHES = (1, 8, 32)
_SECONDS, _QUICK_SECONDS = 6.0, 0.1
# Runs in the tree of either version.
_EXPORT = """
import sys
from pathlib import Path

import onnx
from bench.sizes import SCALER, SIZES
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm

folder, *names = sys.argv[1:]
for size in SIZES:
    if size.name in names:
        form = ServingForm(inference_form(size.model()), SCALER, "forecast")
        onnx.save(trace(form), Path(folder) / f"{names.index(size.name)}.onnx")
"""


@dataclass(frozen=True)
class Finding:
    """A model in both versions.

    Attributes:
        name: Of the model.
        ratios: Seconds of a run of our graph, in units of the earlier one's, by batch.
    """

    name: str
    ratios: Mapping[int, float]


def export(tree: Path, sizes: Sequence[Size], folder: Path) -> list[Path]:
    """Have a version export models.

    Raises:
        RuntimeError: it cannot.
    """
    folder.mkdir()
    run_in(tree, _EXPORT, folder, *(size.name for size in sizes))
    return [folder / f"{index}.onnx" for index in range(len(sizes))]


def compare(size: Size, earlier: Session, ours: Session, seconds: float) -> Finding:
    """Run both graphs of a model in turns, for so long with each size of batch."""
    ratios = {}
    for batch in BATCHES:
        feeds: Arrays = dict(
            zip(ours.inputs, (part.numpy() for part in size.inputs(batch)), strict=True)
        )
        calls: dict[str, Call] = {
            "earlier": partial(earlier.run, feeds),
            "ours": partial(ours.run, feeds),
        }
        taken = interleaved_medians(calls, seconds)
        ratios[batch] = taken["ours"] / taken["earlier"]
    return Finding(size.name, ratios)


def report(findings: Sequence[Finding]) -> str:
    """A table of them."""
    head = ("model", *(f"batch {batch}" for batch in BATCHES))
    rows = (
        (found.name, *(f"{found.ratios[batch]:.3f}" for batch in BATCHES)) for found in findings
    )
    return f"{machine('torch', 'onnxruntime')}\n\n{table(head, rows)}"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.earlier", description=__doc__)
    parser.add_argument("commit", help="of this repository, where foretell was one package")
    parser.add_argument("--quick", action="store_true", help="two models, for a moment")
    given = parser.parse_args()
    sizes = QUICK if given.quick else SIZES
    seconds = _QUICK_SECONDS if given.quick else _SECONDS
    runtime = Runtime("cpu")
    with tempfile.TemporaryDirectory() as name:
        tree = checkout(given.commit, ROOT / ".bench")
        earlier = export(tree, sizes, Path(name) / "earlier")
        ours = export(ROOT, sizes, Path(name) / "ours")
        findings = []
        for size, *graphs in zip(sizes, earlier, ours, strict=True):
            print(size.name, flush=True)
            findings.append(compare(size, *map(runtime.open, graphs), seconds))
    print(report(findings))


if __name__ == "__main__":
    main()
