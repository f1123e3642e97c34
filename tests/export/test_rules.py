from typing import get_args

import pytest
import torch

from foretell.bundle.manifest import Precision
from foretell.export.precision import DTYPES
from foretell.export.rules import RULES


def test_every_precision_has_rules():
    assert set(RULES) == set(get_args(Precision)) == set(DTYPES)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_tolerances_of_half_precision_follow_from_its_digits(precision):
    rules = RULES[precision]
    # The largest error of rounding a number is half of the distance between numbers at 1.
    unit = torch.finfo(DTYPES[precision]).eps / 2
    assert rules.forecast == 8 * unit
    assert rules.attention == 32 * unit
    assert rules.slack == unit / (torch.finfo(torch.float32).eps / 2)
