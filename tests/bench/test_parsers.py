from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bench.parsers import CHANNELS, parsers

ROWS = np.random.default_rng(0).normal(size=(5, CHANNELS)).round(3)


def body(rows: Any) -> bytes:
    return json.dumps({"inputs": [{"series": rows}]}).encode()


@pytest.mark.parametrize("name", parsers())
def test_reads_the_same(name: str) -> None:
    found = parsers()[name](body(ROWS.tolist()))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, ROWS.astype(np.float32))


@pytest.mark.parametrize("wrong", ["1", True, None, [1.0, 2.0]])
@pytest.mark.parametrize("name", parsers())
def test_refuses_the_same(name: str, wrong: Any) -> None:
    rows = ROWS.tolist()
    for row in ([*rows[2][:-1], wrong], rows[2][:-1]):
        rows[2] = row
        # Each library has exceptions of its own.
        with pytest.raises(Exception):  # noqa: B017, PT011
            parsers()[name](body(rows))
