"""What a batch costs the process beyond the GPU's time: `python -m bench.gpu.overhead`.

On the stand-in, whose GPU takes a given time for a replay. Writes its part of docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from bench.gpu.graphs import write_graphs
from bench.gpu.report import PAGE
from bench.page import machine, table, write_part
from bench.sizes import SIZES, Size
from bench.stand_in.machine import Machine, UnavailableError, build

_BATCHES = (1, 8, 32, 128)
_REPLAY_US = 1000
_TEXT = """\
## What a batch costs beyond the GPU

`make gpu-overhead` wrote this part, on the stand-in, whose GPU takes {replay:,} µs for a replay.
{machine}

Microseconds of a batch besides: filling pinned memory, handing over copies and replay, waking up,
and taking the outputs. The stand-in copies by itself, which a GPU does while the thread waits.

{rows}"""


def overhead(stand_in: Machine, size: Size, folder: Path) -> dict[int, float]:
    """Microseconds by batch, beyond the replay's."""
    forecast, _ = write_graphs(size, "float32", folder)
    said = stand_in.run("bench.stand_in.replays", forecast, *_BATCHES, graph_us=_REPLAY_US)
    return {int(batch): took - _REPLAY_US for batch, took in json.loads(said).items()}


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.overhead", description=__doc__)
    parser.add_argument("--print", action="store_true", dest="only_print")
    only_print = parser.parse_args().only_print
    try:
        stand_in = build()
    except UnavailableError as error:
        raise SystemExit(f"gpu-overhead: {error}") from None
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for size in (SIZES[0], SIZES[4]):
            found = overhead(stand_in, size, Path(name) / str(len(rows)))
            rows.append((size.name, *(f"{found[batch]:.0f}" for batch in _BATCHES)))
    text = _TEXT.format(
        replay=_REPLAY_US,
        machine=machine("onnxruntime", "numpy"),
        rows=table(("model", *(f"batch {batch}" for batch in _BATCHES)), rows),
    )
    if only_print:
        print(text)
    else:
        write_part("overhead", text, PAGE)


if __name__ == "__main__":
    main()
