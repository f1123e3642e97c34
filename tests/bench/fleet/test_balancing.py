"""Where requests go, and when they come."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from bench.fleet.arrivals import poisson
from bench.fleet.balancing import any_one, least, of_two, pinned
from bench.fleet.hosts import Device, Host
from bench.fleet.outcome import Outcome


def test_the_least_busy_one() -> None:
    choose = least(Random(0))
    assert {choose([3, 1, 2]) for _ in range(20)} == {1}
    assert {choose([1, 1, 2]) for _ in range(50)} == {0, 1}


def test_the_better_of_two() -> None:
    choose = of_two(Random(0))
    chosen = Counter(choose([0, 9, 9, 9]) for _ in range(4000))
    # Of 16 pairs, 7 have the first.
    assert chosen[0] / 4000 == pytest.approx(7 / 16, abs=0.03)


def test_any_one() -> None:
    choose = any_one(Random(0))
    assert set(Counter(choose([0, 9, 9]) for _ in range(3000)).values()) <= set(range(900, 1100))


def test_connections_stay_where_they_are() -> None:
    choose = pinned(2)(Random(1))
    assert len({choose([0] * 1000) for _ in range(100)}) == 2
    # Each run deals them out anew.
    random = Random(1)
    runs = [{pinned(2)(random)([0] * 1000) for _ in range(1)} for _ in range(9)]
    assert len(set(map(frozenset, runs))) > 2


def test_arrivals_have_their_rate() -> None:
    times = poisson(50, 5000, Random(4))
    assert times == sorted(times)
    assert len(times) == 5000
    assert times[-1] == pytest.approx(100, rel=0.05)


def test_what_a_host_can_do() -> None:
    device = Device(base=0.02, each=0.001, batch=32)
    assert device.rate == pytest.approx(32 / 0.052)
    assert Host(device, devices=3).rate == pytest.approx(3 * device.rate)
    # One HTTP worker of a millisecond is the slower part.
    host = Host(device, devices=3, read=0.0004, write=0.0006)
    assert host.rate == pytest.approx(1000)
    assert Host(device, devices=3, workers=2, read=0.0004, write=0.0006).rate == pytest.approx(
        1846, abs=1
    )


def test_percentiles_and_shares() -> None:
    outcome = Outcome(
        seconds=[float(one) for one in range(100, 0, -1)], refused=25, batches=[1, 3], span=50
    )
    assert (outcome.percentile(0.5), outcome.percentile(0.99), outcome.percentile(1)) == (
        51,
        100,
        100,
    )
    assert (outcome.rate, outcome.batch, outcome.refused_share) == (2, 2, 0.2)
    empty = Outcome()
    assert (
        str((empty.percentile(0.5), empty.rate, empty.batch, empty.refused_share))
        == "(nan, nan, nan, 0.0)"
    )
