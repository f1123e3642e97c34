"""Prices and limits."""

from __future__ import annotations

import pytest

from bench.fleet.cost import (
    cost_of_a_million,
    rate_of_network,
    rate_of_servers,
    seconds_to_fetch,
)
from bench.fleet.report import _SERVER
from bench.page import PAGE

ROW = (
    "| foretell --workers 2 | 239 | 740 | 1.3 | 1.9 | 1807 | 8.6 | 15.6 | 1971 | 32 | 46 | 0.5 |\n"
)


def test_what_a_million_costs() -> None:
    # A machine for 3.60 an hour is 0.001 a second, in which it does 100 * 0.5.
    assert cost_of_a_million(3.6, 100, 0.5) == pytest.approx(0.001 * 1_000_000 / 50)


def test_the_first_row_of_a_server() -> None:
    page = f"| foretell | 9 | 1 |\n{ROW}{ROW.replace('1971', '3')}"
    assert rate_of_servers(page, "foretell --workers 2") == 1971
    with pytest.raises(ValueError, match="no row of 'other'"):
        rate_of_servers(page, "other")


def test_the_page_has_the_row_of_the_example() -> None:
    assert rate_of_servers(PAGE.read_text(), _SERVER) > 0


def test_networks_and_stores() -> None:
    assert rate_of_network(10, 1250) == 1_000_000
    assert seconds_to_fetch(100, 50, 2) == 2.5
