"""The part of docs/scaling.md that was measured and simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.fleet.cost import (
    cost_of_a_million,
    rate_of_network,
    rate_of_servers,
    seconds_to_fetch,
)
from bench.fleet.hosts import Device, Host
from bench.fleet.seen import Seen
from bench.page import PAGE, machine, table

# Inputs of the examples: nobody's prices, and no measurements.
PRICE, USE = 0.10, 0.5
GIGABITS = 10.0
MODEL_MB, STORE_GB = 100.0, 1.0
GPU = Device(base=0.001, each=0.00002, batch=128)
_SERVER = "foretell --workers 2"
_STARTS = (1, 10, 100)
_WORKERS = (1, 4, 16, 32)


@dataclass(frozen=True)
class Compared:
    """A row of what was measured next to what was simulated."""

    name: str
    measured: Seen
    simulated: Seen


@dataclass
class Findings:
    """All that the part says.

    Attributes:
        base: Seconds that a run of the real server's device was to take, besides its windows.
        load: Of two servers and of fleets.
        host: As the real server was found to be.
        network: Seconds to it, and back.
        alone: One server, by load.
        two: Two servers, by how requests are dealt out.
        waits: One server simulated, by load.
        fleets: Fleets simulated, by size and by how requests are dealt out.
    """

    base: float
    load: float
    host: Host = field(default_factory=lambda: Host(GPU))
    network: float = 0.0
    alone: list[Compared] = field(default_factory=list)
    two: list[Compared] = field(default_factory=list)
    waits: dict[float, Seen] = field(default_factory=dict)
    fleets: dict[tuple[int, str], Seen] = field(default_factory=dict)


def _pairs(seen: Compared) -> list[str]:
    """Each number as it was measured and simulated."""
    one, other = seen.measured, seen.simulated
    return [
        seen.name,
        f"{one.rate:.0f} / {other.rate:.0f}",
        f"{1000 * one.p50:.0f} / {1000 * other.p50:.0f}",
        f"{1000 * one.p99:.0f} / {1000 * other.p99:.0f}",
        f"{one.batch:.1f} / {other.batch:.1f}",
        f"{one.refused:.0%} / {other.refused:.0%}",
    ]


def _error(rows: list[Compared], name: str) -> float:
    """The largest part by which a number of the simulation differs."""
    return max(abs(getattr(row.simulated, name) / getattr(row.measured, name) - 1) for row in rows)


_HEAD = ("answers/s", "p50, ms", "p99, ms", "windows a run", "refused")
_PAGE = """\
## Measured and simulated

`make bench-fleet` wrote this part. {machine}

### Next to real servers

A server of one process with a device that takes {base:.0f} ms for a run and {each:.0f} ms more for
each window, of {batch} windows at most, and room for {queue} windows that wait. The device only
waits, so that the CPUs are left to the server and to the caller. Requests of one window come by
chance, as those of many callers do; the simulation gets the times at which they were sent. What it
knows of the server is from two other runs: {worker:.2f} ms of a CPU for a request and its answer,
{network:.2f} ms to the server and back besides, and a clock that wakes the device {late:.2f} ms
late. Each cell is measured / simulated.

{alone}
The simulation is off by at most {rate_error:.0%} in answers, {median_error:.0%} in the median and
{tail_error:.0%} in the 99th percentile.

Two such servers, at {load:.0%} of what both can do, and how requests are dealt out:

{two}
Off by at most {two_median_error:.0%} in the median and {two_tail_error:.0%} in the 99th percentile.

### What to expect

Simulated: the same server by load. Batches fill as load comes, so that waiting grows slowly, until
the device is almost full.

{waits}
Simulated: the 99th percentile in ms of fleets of it at {load:.0%}, by how requests are dealt out.

{fleets}
### What fills up first

Each request has one window, and is {bytes:.0f} bytes of JSON with its answer. The HTTP workers are
those measured above. The network of {gigabits:.0f} Gbit/s and the device are **assumptions**, not
measurements: a run takes {gpu_base:.0f} ms and {gpu_each:.0f} µs more for each window, up to
{gpu_batch}.

{limits}
Servers that start together fetch their models together. From a store that gives {store:.0f} GB/s
in all, models of {model:.0f} MB take (assumptions, too)

{starts}
### What it costs

A million forecasts cost *price* · 1,000,000 / (3600 · *rate* · *use*): the machine's price for an
hour, its forecasts a second, and the part of them that it does on average, since peaks need room.

| input | example | from |
| --- | --- | --- |
| price | {price:.2f} an hour | nobody: put your own |
| rate | {rate:.0f} a second | [benchmarks.md](benchmarks.md): `{server}`, PatchTST d 16, 2 CPUs |
| use | {use:.0%} | nobody: by your own traffic |

That is {cost:.3f} for a million. A machine that costs ten times as much and forecasts twenty times
as fast halves it, if there is as much for it to do.
"""


def _starts() -> str:
    return table(
        ("servers", *(f"{count}" for count in _STARTS)),
        [
            (
                "seconds",
                *(f"{seconds_to_fetch(count, MODEL_MB, STORE_GB):g}" for count in _STARTS),
            )
        ],
    )


def _limits(host: Host, size: int) -> str:
    worker = host.read + host.write
    rows = [
        (f"{count} HTTP worker{'s' * (count > 1)}", f"{count / worker:,.0f}") for count in _WORKERS
    ]
    rows.append(("a GPU as assumed", f"{GPU.rate:,.0f}"))
    rows.append((f"a network of {GIGABITS:.0f} Gbit/s", f"{rate_of_network(GIGABITS, size):,.0f}"))
    return table(("", "requests a second at most"), rows)


def page(findings: Findings, size: int) -> str:
    """Write the part; `size` is the bytes of a request and its answer."""
    host, device = findings.host, findings.host.device
    rate = rate_of_servers(PAGE.read_text(), _SERVER)
    counts = sorted({count for count, _ in findings.fleets})
    names = list(dict.fromkeys(name for _, name in findings.fleets))
    return _PAGE.format(
        machine=machine("onnxruntime"),
        base=1000 * findings.base,
        each=1000 * device.each,
        batch=device.batch,
        queue=host.queue,
        worker=1000 * (host.read + host.write),
        network=2000 * findings.network,
        late=1000 * (device.base - findings.base),
        alone=table(("load", *_HEAD), map(_pairs, findings.alone)),
        rate_error=_error(findings.alone, "rate"),
        median_error=_error(findings.alone, "p50"),
        tail_error=_error(findings.alone, "p99"),
        load=findings.load,
        two=table(("", *_HEAD), map(_pairs, findings.two)),
        two_median_error=_error(findings.two, "p50"),
        two_tail_error=_error(findings.two, "p99"),
        waits=table(
            ("load", "p50, ms", "p99, ms", "windows a run"),
            (
                (
                    f"{load:.0%}",
                    f"{1000 * one.p50:.0f}",
                    f"{1000 * one.p99:.0f}",
                    f"{one.batch:.1f}",
                )
                for load, one in findings.waits.items()
            ),
        ),
        fleets=table(
            ("servers", *map(str, counts)),
            (
                (name, *(f"{1000 * findings.fleets[count, name].p99:.0f}" for count in counts))
                for name in names
            ),
        ),
        bytes=size,
        gigabits=GIGABITS,
        gpu_base=1000 * GPU.base,
        gpu_each=1e6 * GPU.each,
        gpu_batch=GPU.batch,
        limits=_limits(host, size),
        store=STORE_GB,
        model=MODEL_MB,
        starts=_starts(),
        price=PRICE,
        rate=rate,
        server=_SERVER,
        use=USE,
        cost=cost_of_a_million(PRICE, rate, USE),
    )
