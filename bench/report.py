"""The part of docs/benchmarks.md about graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench.page import machine, table
from bench.result import FLOOR_BATCH, MEMORY_BATCH, Result

_TEXT = """\
## Graphs

`make bench` measures, in one run, each model as plain torch module, compiled by `torch.compile`,
exported by `torch.onnx.export` as it stands, and as foretell exports it; all with one thread, the
last two in onnxruntime sessions opened as the service opens them. It wrote this part.

{machine}

Times are medians of one call in milliseconds. The contenders take turns, so that whatever else the
machine does hits all of them: compare the columns, not the runs. Weights are random.

"""
_FLOOR = """\
### How far from the floor

The floor is the time of the matrix products alone at batch {batch}, at the rate of one large
product in onnxruntime, which took its turns with the contenders. Where the rest goes is what
onnxruntime's profiler says of our graph; small matrix products, such as those of attention heads,
do not reach that rate either.

"""
_MEMORY = """
### Peak memory

MiB that loading the model and running it at batch {batch} adds to a process.

"""


def milliseconds(seconds: Mapping[str, float]) -> str:
    """All contenders in one line."""
    return ", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in seconds.items())


def page(results: Iterable[Result], *, baseline: tuple[str, str], ours: str) -> str:
    """The part.

    Args:
        results: Of all models.
        baseline: The contenders ratios are given to.
        ours: The contender the ratios are of.
    """
    results = list(results)
    text = _TEXT.format(machine=machine("torch", "onnxruntime"))
    text += "".join(_times(result, baseline, ours) for result in results)
    text += _FLOOR.format(batch=FLOOR_BATCH)
    head = ("model", "MFLOP a window", "GFLOP/s", "floor, ms", "measured, ms", "times the floor")
    rows = []
    for result in results:
        measured = result.seconds[FLOOR_BATCH][ours]
        floor = FLOOR_BATCH * result.flops / result.rate
        rows.append(
            (
                result.size.name,
                f"{result.flops / 1e6:.0f}",
                f"{result.rate / 1e9:.0f}",
                f"{floor * 1e3:.2f}",
                f"{measured * 1e3:.2f}",
                f"{measured / floor:.2f}",
            )
        )
    text += table(head, rows) + "\n"
    text += table(
        ("model", "our graph's time, by operators"),
        [(result.size.name, _shares(result.shares)) for result in results],
    )
    if any(result.memory for result in results):
        text += _MEMORY.format(batch=MEMORY_BATCH)
        names = sorted({name for result in results for name in result.memory})
        text += table(
            ("model", *names),
            [
                (r.size.name, *(f"{r.memory[n]:.0f}" if n in r.memory else "" for n in names))
                for r in results
            ],
        )
    return text


def _times(result: Result, baseline: tuple[str, str], ours: str) -> str:
    names = list(dict.fromkeys(name for by in result.seconds.values() for name in by))
    names.sort(key=lambda name: name == ours)
    head = ("batch", *names, *(f"times faster than {name}" for name in baseline))
    rows = []
    for batch, seconds in result.seconds.items():
        cells = [f"{seconds[name] * 1e3:.2f}" if name in seconds else "" for name in names]
        ratios = [
            f"{seconds[name] / seconds[ours]:.2f}" if name in seconds else "" for name in baseline
        ]
        rows.append((str(batch), *cells, *ratios))
    text = f"### {result.size.name}\n\n{table(head, rows)}\n"
    for name, reason in result.skipped.items():
        text += f"{name} is missing: {reason}\n\n"
    return text


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
