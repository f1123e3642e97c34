"""The files and calls that one request passes, by `tests.support.calls`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

from bench import versions
from bench.harness import ROOT, Result, Row, Run
from bench.models import START
from tests.support.bundles import Spec, write_bundle
from tests.support.calls import Trace, count

_CHANNELS, _CONTEXT = tuple("abcdefg"), 336


def measure(run: Run) -> Result:
    """Count them with one process and with two HTTP workers."""
    trees = {"ours": (ROOT, Path(sys.executable))}
    for commit in run.baselines:
        tree = versions.checkout(commit)
        trees[commit] = tree, versions.environment(tree)
    write_bundle(run.folder / "models", Spec(channels=_CHANNELS, context=_CONTEXT, horizon=96))
    series = [[2 + 0.001 * (row % 24)] * len(_CHANNELS) for row in range(_CONTEXT)]
    body = json.dumps({"inputs": [{"series": series, "start_timestamp": START}]}).encode()
    tables: dict[str, list[Row]] = {"calls": []}
    for code, (tree, python) in trees.items():
        for workers in run.pick((1, 2), (1,)):
            folder = run.folder / f"{code}-{workers}"
            trace = count(tree, python, run.folder / "models", body, folder, workers=workers)
            found = {"files": len(trace.files), "calls": len(trace.calls)}
            row = {"code": code, "HTTP workers": workers, **found, "changes of file": trace.changes}
            tables["calls"].append(row)
            tables[f"{code}, HTTP workers: {workers}"] = _detail(trace)
    return Result(dict(tables))


def _detail(trace: Trace) -> list[Row]:
    """What happens file by file, in order of time."""
    rows: list[Row] = []
    for (place, path), calls in groupby(trace.calls, lambda call: (call.place, call.path)):
        functions = Counter(call.function for call in calls).items()
        described = ", ".join(
            name if times == 1 else f"{name} x{times}" for name, times in functions
        )
        rows.append({"process": place, "file": path, "functions": described})
    return rows
