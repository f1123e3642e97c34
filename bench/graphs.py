"""Our graphs against torch, torch.compile and a plain export: `python -m bench.graphs`.

Writes its part of docs/benchmarks.md; `--quick` measures two models for a moment and prints the
part instead.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from bench import report
from bench.contenders import EAGER, OURS, PLAIN, Contenders
from bench.floor import PRODUCT_FLOPS, flops, large_product
from bench.memory import peak_memory
from bench.page import PAGE, write_part
from bench.result import BATCHES, FLOOR_BATCH, MEMORY_BATCH, Result
from bench.shares import shares
from bench.sizes import QUICK, SIZES, Size
from bench.timing import Call, interleaved_medians
from foretell.service.engine.runtime import Runtime

_PRODUCT = "large product"


def measure(size: Size, runtime: Runtime, folder: Path, product: Call, *, quick: bool) -> Result:
    """Measure one model, and meanwhile a large matrix product."""
    contenders = Contenders(size, runtime, folder)
    result = Result(size, flops(size))
    for batch in BATCHES[:2] if quick else BATCHES:
        calls = contenders.calls(batch, compiled=not quick)
        if batch == FLOOR_BATCH:
            calls[_PRODUCT] = product
        seconds = interleaved_medians(calls, 0.5 if quick else 4)
        if batch == FLOOR_BATCH:
            result.rate = PRODUCT_FLOPS / seconds.pop(_PRODUCT)
        result.seconds[batch] = seconds
        print(f"  batch {batch}: " + report.milliseconds(result.seconds[batch]), flush=True)
    if not quick:
        result.memory = {EAGER: peak_memory(MEMORY_BATCH, SIZES.index(size))}
        result.memory |= {
            name: peak_memory(MEMORY_BATCH, path) for name, path in contenders.graphs.items()
        }
    feeds = dict(
        zip(
            contenders.input_names,
            (part.numpy() for part in size.inputs(FLOOR_BATCH)),
            strict=True,
        )
    )
    result.shares = shares(contenders.graphs[OURS], feeds)
    result.skipped = contenders.skipped
    return result


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.graphs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two models, for a moment")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    runtime = Runtime("cpu")
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        product = large_product(runtime, Path(name))
        for size in QUICK if quick else SIZES:
            print(size.name, flush=True)
            folder = Path(name) / str(len(results))
            folder.mkdir()
            results.append(measure(size, runtime, folder, product, quick=quick))
    page = report.page(results, baseline=(EAGER, PLAIN), ours=OURS)
    if quick:
        print(page)
    else:
        write_part("graphs", page)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
