"""What forecasts cost, and what fills up first."""

from __future__ import annotations

import re

_HOUR = 3600
_MILLION = 1_000_000


def cost_of_a_million(price: float, rate: float, use: float) -> float:
    """What a million forecasts cost.

    Args:
        price: Of the machine, for an hour.
        rate: Forecasts a second, when it has nothing else to do.
        use: Part of that which it does on average: what is left waits for peaks, and for those
            who fail.
    """
    return price * _MILLION / (_HOUR * rate * use)


def rate_of_servers(page: str, server: str) -> float:
    """Requests a second over 64 connections, of the first model, from docs/benchmarks.md.

    Raises:
        ValueError: the page has no such row.
    """
    found = re.search(rf"^\| {re.escape(server)} \|(.*)$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"docs/benchmarks.md has no row of {server!r}: make bench-server")
    # Memory; rate, median and 99th percentile of 1, 16 and 64 connections.
    return float(found[1].split("|")[7])


def rate_of_network(gigabits: float, bytes_a_request: float) -> float:
    """Requests a second of a network."""
    return gigabits * 1e9 / 8 / bytes_a_request


def seconds_to_fetch(servers: int, megabytes: float, gigabytes_a_second: float) -> float:
    """Until all servers that start at once have fetched their models from one store."""
    return servers * megabytes / (1000 * gigabytes_a_second)
