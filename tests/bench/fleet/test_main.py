"""What the command makes of what it has measured."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from bench.fleet.__main__ import DEVICE, calibrate, extrapolate, policies
from bench.fleet.balancing import any_one
from bench.fleet.hosts import Device, Host
from bench.fleet.measuring import Measured, servers
from bench.fleet.report import Compared, Findings, page
from bench.fleet.seen import Seen
from foretell.service.engine.runtime import Runtime


def seen(p50: float, batch: float) -> Seen:
    return Seen(rate=10, p50=p50, p99=2 * p50, batch=batch, refused=0)


def test_a_server_is_told_from_two_runs() -> None:
    # Runs of two windows took 23 ms, 1 ms more than they should; requests 28 ms, 3 of them a CPU's.
    idle = Measured([0], seen(0.028, 2), run=0.023, cpu=1)
    busy = Measured([0], seen(1, 9), run=1, cpu=0.003)
    host, network = calibrate(idle, busy)
    assert host.device == Device(pytest.approx(0.021), DEVICE.each, DEVICE.batch)
    assert host.read + host.write == pytest.approx(0.003)
    assert network == pytest.approx(0.001)
    # What a busy CPU adds is not taken for less than nothing.
    assert calibrate(Measured([0], seen(0.02, 2), 0.023, 1), busy)[1] == 0


def found() -> Findings:
    findings = Findings(DEVICE.base, 0.7)
    findings.host = Host(Device(0.021, 0.001, 32), read=0.0002, write=0.0002, queue=64)
    findings.network = 0.0005
    findings.alone = [
        Compared("30%", Seen(100, 0.030, 0.050, 2.5, 0), Seen(110, 0.033, 0.040, 2.4, 0)),
        Compared("130%", Seen(600, 0.1, 0.2, 30, 0.25), Seen(600, 0.1, 0.2, 30, 0.24)),
    ]
    findings.two = [Compared("by chance", Seen(9, 0.2, 0.4, 3, 0), Seen(9, 0.1, 0.4, 3, 0))]
    return findings


def test_the_page_says_what_was_found() -> None:
    findings = found()
    extrapolate(300, findings)
    text = page(findings, 2000)
    assert "| 30% | 100 / 110 | 30 / 33 | 50 / 40 | 2.5 / 2.4 | 0% / 0% |" in text
    assert "| 130% | 600 / 600 | 100 / 100 | 200 / 200 | 30.0 / 30.0 | 25% / 24% |" in text
    assert "off by at most 10% in answers, 10% in the median and\n20% in the 99th" in text
    assert "Off by at most 50% in the median and 0% in the 99th" in text
    assert "0.40 ms of a CPU for a request and its answer,\n1.00 ms to the server" in text
    assert "1.00 ms\nlate" in text
    assert "| 4 HTTP workers | 10,000 |" in text
    assert "| a network of 10 Gbit/s | 625,000 |" in text
    assert "| servers | 1 | 2 | 10 | 100 |" in text
    assert not re.search(r"[{}]|nan", text)


def test_more_load_is_longer_to_wait() -> None:
    findings = found()
    extrapolate(1500, findings)
    assert list(findings.waits) == sorted(findings.waits)
    for name in ("p50", "p99", "batch"):
        values = [getattr(one, name) for one in findings.waits.values()]
        assert values[0] < values[3] < values[-1]
    chance, least = (
        findings.fleets[10, name].p99 for name in ("by chance", "to the least busy one")
    )
    assert least < chance
    # Each fleet has as much to do as it has servers.
    rates = [findings.fleets[count, "to the least busy one"].rate for count in (1, 10)]
    assert rates[1] / rates[0] == pytest.approx(10, rel=0.2)


def test_connections_come_with_the_servers() -> None:
    choose = policies(3)["four connections for each server, which stay"](Random(0))
    # Of so many servers hardly two connections have the same.
    assert len({choose([0] * 1_000_000) for _ in range(500)}) == 12


def test_this_process_has_its_own_runtime() -> None:
    assert Runtime.open.__module__ == Runtime.__module__


def test_a_real_server_takes_the_time_that_it_is_given(tmp_path: Path) -> None:
    device = Device(base=0.2, each=0.01, batch=2)
    with servers(device, 1, 2, tmp_path) as fleet:
        apart = fleet.offer([0.0], any_one(Random(0)))
        assert apart.seen.batch == 1
        assert min(apart.run, apart.seen.p50) >= 0.21
        together = fleet.offer([0.0] * 40, any_one(Random(0)))
        # One or two run, two wait, and most of the others find no room.
        assert together.seen.refused > 0
        assert together.seen.batch > 1
        assert len(together.sent) == 40
        assert 500 < fleet.exchanged() < 5000
