"""Run on the stand-in: `python -m tests.support.stand_in.graphs GRAPH …`.

Opens each graph as a server does, has every size of batch captured, and replays each. Prints a line
of JSON for each graph.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.cuda.gpu import CudaSession
from foretell.service.engine.runtime import Runtime

LARGEST = 128
# Sizes that fill their bucket, and some that do not.
SIZES = (1, 2, 3, 4, 8, 9, 16, 32, 64, 65, 127, 128)


def main() -> None:
    """Check every graph."""
    runtime = Runtime("cuda")
    for graph in map(Path, sys.argv[1:]):
        sys.stdout.write(json.dumps({"graph": str(graph), **_look(runtime, graph)}) + "\n")
        sys.stdout.flush()


def _look(runtime: Runtime, graph: Path) -> dict[str, object]:
    try:
        session = runtime.open(graph, max_batch=LARGEST)
    except Exception as error:
        return {"refused": str(error)}
    try:
        for worker in range(runtime.inference_threads(1)):
            session.warm(worker)
            for size in SIZES:
                outputs = session.run(_feeds(session.inputs, size), worker)
                wrong = {name: rows.shape for name, rows in outputs.items() if len(rows) != size}
                if wrong:
                    return {"refused": f"expected {size} windows of outputs, got {wrong}"}
        return {"captured": isinstance(session, CudaSession) and session.captures}
    except Exception as error:
        return {"refused": f"{error}: {error.__cause__}"}
    finally:
        session.close()


def _feeds(inputs: dict[str, tuple[int | None, ...]], size: int) -> Arrays:
    return {
        name: np.ones((size, *(axis or 1 for axis in shape[1:])), np.float32)
        for name, shape in inputs.items()
    }


if __name__ == "__main__":
    main()
