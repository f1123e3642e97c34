"""Whether forecasts of flat histories depend on their batch, by `tests.support.flat_histories`."""

from __future__ import annotations

import torch

from bench.harness import Result, Run
from tests.support.flat_histories import LARGEST, own, published
from tests.support.flat_histories import measure as forecast


def measure(run: Run) -> Result:
    """Models with random weights, and the published Autoformers if they lie there."""
    torch.set_num_threads(1)
    rows, failures = [], []
    for subject in (*own(), *published()):
        if not run.wants(subject.name):
            continue
        found = forecast(subject)
        largest = float(max(found.unmarked, default=0.0))
        marked = f"{found.marked.mean():.0%}"
        rows.append({"model": subject.name, "`ill_conditioned`": marked, "otherwise": largest})
        print(rows[-1], flush=True)
        if largest > LARGEST:
            failures.append(f"{subject.name}: {largest:.1e}")
        if run.quick:
            break
    return Result({"ties": rows}, failures)
