"""Run on the stand-in: `python -m tests.support.stand_in.replays GRAPH BATCH …`.

Prints median microseconds of a batch, for each size.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from foretell.service.engine.runtime import Runtime

_RUNS = 2_000


def main() -> None:
    """Time batches of every size."""
    graph, *batches = sys.argv[1:]
    session = Runtime("cuda").open(Path(graph), max_batch=max(map(int, batches)))
    session.warm(0)
    found = {}
    for batch in map(int, batches):
        rows = {
            name: np.ones((batch, *(axis or 1 for axis in shape[1:])), np.float32)
            for name, shape in session.inputs.items()
        }
        took = []
        for _ in range(_RUNS):
            began = time.perf_counter()
            session.run(rows)
            took.append(time.perf_counter() - began)
        found[batch] = median(took) * 1e6
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
