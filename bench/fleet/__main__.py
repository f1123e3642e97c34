"""A fleet of servers, simulated and measured: `python -m bench.fleet`.

Writes its part of docs/scaling.md; `--quick` does everything for a moment and prints it instead.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from random import Random

from bench.fleet import report
from bench.fleet.arrivals import poisson
from bench.fleet.balancing import Choice, Policy, any_one, least, of_two, pinned
from bench.fleet.hosts import Device, Host
from bench.fleet.measuring import Measured, Servers, servers
from bench.fleet.report import Compared, Findings
from bench.fleet.seen import Seen
from bench.fleet.simulation import simulate
from bench.page import write_part

PAGE = Path(__file__).parent.parent.parent / "docs" / "scaling.md"
# So slow that this machine's two CPUs keep up with two of them.
DEVICE = Device(base=0.02, each=0.001, batch=32)
_QUEUE = 128
# Of what the device can do: alone, and of two servers.
_LOADS = (0.3, 0.5, 0.7, 0.85, 0.95, 1.3)
_LOAD_OF_TWO = 0.7
_UNLOADED = 0.02
_FLEETS = (1, 2, 10, 100)
_WAITS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


def policies(count: int) -> dict[str, Policy]:
    """How requests may be dealt out to so many servers."""
    return {
        "four connections for each server, which stay": pinned(4 * count),
        "by chance": any_one,
        "to the less busy one of two": of_two,
        "to the least busy one": least,
    }


def calibrate(found: Measured, busy: Measured) -> tuple[Host, float]:
    """A host as the server is, and the seconds to it and back, each.

    Args:
        found: At so little load that no request meets another.
        busy: At more, where CPUs do little besides requests.
    """
    # The clock wakes late, always by about the same.
    base = found.run - DEVICE.each * found.seen.batch
    device = Device(base, DEVICE.each, DEVICE.batch)
    host = Host(device, read=busy.cpu / 2, write=busy.cpu / 2, queue=_QUEUE)
    network = (found.seen.p50 - found.run - busy.cpu) / 2
    return host, max(0.0, network)


def measure(seconds: float, findings: Findings, folder: Path) -> int:
    """Load real servers, and simulate the same requests.

    Returns:
        Bytes of a request and its answer.
    """
    random = Random(0)

    def offer(fleet: Servers, load: float, choose: Choice) -> Measured:
        rate = load * DEVICE.rate
        return fleet.offer(poisson(rate, max(20, round(rate * seconds)), random), choose)

    def note(rows: list[Compared], name: str, found: Measured, simulated: Seen) -> None:
        rows.append(Compared(name, found.seen, simulated))
        print(f"  {name}: {found.seen}\n    simulated: {simulated}", flush=True)

    alone = any_one(random)
    with servers(DEVICE, 1, _QUEUE, folder / "one") as fleet:
        offer(fleet, 0.3, alone)
        idle, busy = offer(fleet, _UNLOADED, alone), offer(fleet, 0.5, alone)
        findings.host, findings.network = host, network = calibrate(idle, busy)
        print(f"  {host}, network {network:.4g} s", flush=True)
        for load in _LOADS:
            found = offer(fleet, load, alone)
            simulated = simulate([host], alone, found.sent, network=network)
            note(findings.alone, f"{load:.0%}", found, Seen.of(simulated))
    with servers(DEVICE, 2, _QUEUE, folder / "two") as fleet:
        offer(fleet, 0.5, any_one(random))
        for name, policy in policies(2).items():
            # Chance decides the same in both.
            found = offer(fleet, 2 * _LOAD_OF_TWO, policy(Random(2)))
            simulated = simulate([host] * 2, policy(Random(2)), found.sent, network=network)
            note(findings.two, name, found, Seen.of(simulated))
        return fleet.exchanged()


def extrapolate(requests: int, findings: Findings) -> None:
    """Simulate what there is not here."""
    random = Random(1)
    host, network = findings.host, findings.network
    for load in _WAITS:
        times = poisson(load * host.device.rate, requests, random)
        findings.waits[load] = Seen.of(simulate([host], least(random), times, network=network))
    for count in _FLEETS:
        times = poisson(_LOAD_OF_TWO * count * host.device.rate, requests, random)
        for name, policy in policies(count).items():
            outcome = simulate([host] * count, policy(random), times, network=network)
            findings.fleets[count, name] = Seen.of(outcome)
        print(f"  {count} servers simulated", flush=True)


def main() -> None:
    """Measure, simulate, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="for a moment")
    quick = parser.parse_args().quick
    findings = Findings(DEVICE.base, _LOAD_OF_TWO)
    with tempfile.TemporaryDirectory() as name:
        size = measure(0.5 if quick else 12, findings, Path(name))
    extrapolate(500 if quick else 20_000, findings)
    text = report.page(findings, size)
    if quick:
        print(text)
    else:
        write_part("fleet", text, PAGE)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
