from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from foretell.bundle.bounds import Bound, Bounds, limits

READ = TypeAdapter(Bounds)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sun=0:", {"sun": (0, None)}),
        ("sun=0:,cloud=:10", {"sun": (0, None), "cloud": (None, 10)}),
        (["sun=0:", " cloud = -1 : 1.5 ,a=b=:1e3"], {"sun": (0, None), "cloud": (-1, 1.5)}),
        ({"sun": "0:"}, {"sun": (0, None)}),
        ({"sun": {"low": 0, "high": 100}}, {"sun": (0, 100)}),
        ([], {}),
    ],
)
def test_reads_flags_and_mappings(given: Any, expected: dict[str, Any]) -> None:
    found = READ.validate_python(given)
    bounds = {name: (bound.low, bound.high) for name, bound in found.items()}
    assert bounds == expected | ({"a=b": (None, 1000)} if "a=b" in found else {})
    assert READ.validate_json(READ.dump_json(found)) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sun", "expected CHANNEL=LOW:HIGH, such as irradiance=0:"),
        ("sun=3", "expected LOW:HIGH, such as 0: or 0:100"),
        ("sun=0:1:2", "expected LOW:HIGH"),
        ("sun=:", "expected a low or a high bound"),
        ("sun=low:", "valid number"),
        ("sun=nan:", "finite"),
        ("sun=-inf:1", "finite"),
        ("sun=1:1", "the low bound 1 is not below the high one 1"),
        ("sun=0:,sun=:1", "sun has two bounds"),
        ({"sun": {"least": 0}}, "Extra inputs"),
        (7, "dictionary"),
    ],
)
def test_invalid_bound_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        READ.validate_python(given)


def test_limits_are_in_the_order_of_the_channels() -> None:
    assert limits({}, ["a", "b"]) is None
    found = limits(READ.validate_python("b=0:,c=-1:1"), ["a", "b", "c"])
    assert found is not None
    np.testing.assert_array_equal(found.low, [-np.inf, 0, -1])
    np.testing.assert_array_equal(found.high, [np.inf, np.inf, 1])
    moved = found.apply(np.array([[-5, -5, -5], [5, 5, 5], [np.nan, np.nan, 0.5]]))
    np.testing.assert_array_equal(moved, [[-5, 0, -1], [5, 5, 1], [np.nan, np.nan, 0.5]])


@pytest.mark.parametrize(
    "text",
    [
        *("0:", ":0.5", "-3:100"),
        *("1234567:", "-0.1:1e+16", ":123456789.125", "0:0.30000000000000004"),
    ],
)
def test_bound_is_shown_as_written(text: str) -> None:
    assert str(Bound.model_validate(text)) == text
