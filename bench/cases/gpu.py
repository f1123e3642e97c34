"""Every graph on a stand-in for CUDA's libraries."""

from __future__ import annotations

from typing import Any, get_args

import torch

from bench.harness import Result, Row, Run
from bench.models import SIZES
from foretell.bundle.manifest import Precision
from foretell.export.rules import RULES
from tests.support.stand_in.look import check
from tests.support.stand_in.machine import UnavailableError, build
from tests.support.variants import VARIANTS


def measure(run: Run) -> Result:
    """The largest relative error of a forecast of every graph that onnxruntime makes for CUDA."""
    torch.set_num_threads(1)
    try:
        stand_in = build()
    except UnavailableError as error:
        raise SystemExit(str(error)) from None
    precisions: tuple[Precision, ...] = get_args(Precision)
    rows: list[Row] = []
    failures = []
    for size in run.pick((*SIZES, *VARIANTS), VARIANTS[:1]):
        if not run.wants(size.name):
            continue
        row: dict[str, Any] = {"model": size.name}
        for found in check(stand_in, size, run.pick(precisions, precisions[:1])):
            row[found.precision] = "" if found.left_out else found.error
            failures += [f"{size.name}, {found.precision}: {fault}" for fault in found.faults]
        rows.append(row)
        print(row, flush=True)
    rows.append({"model": "*allowed*", **{one: RULES[one].forecast for one in precisions}})
    return Result({"graphs": rows}, failures)
