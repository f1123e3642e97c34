"""The part of docs/benchmarks.md about servers."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from bench.page import judged, machine, table
from bench.serving.contenders import CONTENDERS, OURS
from bench.serving.result import CONNECTIONS, LARGE, Result, Served

_TEXT = """\
## Servers under load

`make bench-server` wrote this part: every server with the same model on the same machine in one
run, under load from wrk, which shares the CPUs. A request is one window, 18 kB of JSON. The others
serve what their users would have: the graph of `torch.onnx.export`, or the torch module, with the
settings in `bench/serving/`. Before it is measured, each server must give torch's forecast.

The last model has next to nothing to compute: it shows what the servers themselves take. With a
model that takes longer, none answers more requests than with this one.

{machine}

"""
_MODEL = """\
### {name}

onnxruntime in a loop, a thread a CPU and no server: {rate:.0f} windows/s on our graph; one run
takes {latency:.2f} ms. Servers took turns with this loop over {most} connections, those of foretell
with each other, too: what they did of it is the median of the turns.

"""
_LARGE = """\
One request with {large} series: {rate:.0f} windows/s, {ratio:.2f} of the loop in batches of 32.

"""


def page(results: Iterable[Result]) -> str:
    """The part."""
    return _TEXT.format(machine=machine("onnxruntime", "fastapi")) + "".join(map(_model, results))


# By subject: the least part of the requests a second before.
_LEAST_RATES = (0.97, 0.97, 0.92)
_LEAST_LARGE, _MOST_P99, _MOST_MEMORY = 0.97, 1.05, 1.0


def compared(results: Iterable[Result], commit: str) -> str:
    """How many times as much as at an earlier commit each measure is, model by model."""
    most = CONNECTIONS[-1]
    rows = []
    for result, least in zip(results, _LEAST_RATES, strict=True):
        for name in (one.name for one in CONTENDERS if one.name.startswith(OURS)):
            ours = result.served.get(name)
            before = result.served.get(name.replace(OURS, f"{OURS} {commit}"))
            if ours is None or before is None:
                continue
            pairs = {
                connections: list(zip(turns, before.turns[connections], strict=True))
                for connections, turns in ours.turns.items()
            }
            rates = {
                connections: median(one.rate / other.rate for one, other in of_turns)
                for connections, of_turns in pairs.items()
            }
            large = median(
                one / other for one, other in zip(ours.large_turns, before.large_turns, strict=True)
            )
            rows.append(
                (
                    result.name,
                    name,
                    *(f"{rates[connections]:.3f}" for connections in CONNECTIONS[:-1]),
                    _at_least(rates[most], least),
                    _at_least(large, _LEAST_LARGE),
                    _at_most(median(one.p99 / other.p99 for one, other in pairs[most]), _MOST_P99),
                    _at_most(ours.memory / before.memory, _MOST_MEMORY),
                )
            )
    head = ("model", "server", *(f"{connections}: req/s" for connections in CONNECTIONS))
    head += (f"{LARGE} series", f"{most}: p99", "memory")
    return f"### Times what {commit} has\n\n{table(head, rows)}"


def _at_least(value: float, limit: float) -> str:
    return judged(f"{value:.3f}", limit, is_reached=value >= limit)


def _at_most(value: float, limit: float) -> str:
    return judged(f"{value:.3f}", limit, is_reached=value <= limit)


def _model(result: Result) -> str:
    text = _MODEL.format(
        name=result.name,
        rate=result.raw.rate,
        latency=result.raw.latency * 1e3,
        most=CONNECTIONS[-1],
    )
    head = ["server", "memory, MiB"]
    for connections in CONNECTIONS:
        head += [f"{connections}: req/s", "p50, ms", "p99, ms"]
    head += [f"of the loop at {CONNECTIONS[-1]}", "failed"]
    rows = [_row(name, served) for name, served in result.served.items()]
    text += table(head, rows) + "\n"
    ours = result.served.get(OURS)
    if ours is not None and ours.large_rate is not None:
        text += _LARGE.format(
            large=LARGE,
            rate=ours.large_rate,
            ratio=ours.large_share,
        )
    for name, reason in result.skipped.items():
        text += f"{name} is missing: {reason}\n\n"
    return text


def _row(name: str, served: Served) -> list[str]:
    cells = [name, f"{served.memory / 2**20:.0f}"]
    for connections in CONNECTIONS:
        load = served.loads[connections]
        cells += [f"{load.rate:.0f}", f"{load.p50 * 1e3:.1f}", f"{load.p99 * 1e3:.1f}"]
    failed = sum(load.failed for load in served.loads.values())
    return [*cells, f"{served.share:.2f}", str(failed)]
