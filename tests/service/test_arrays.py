from __future__ import annotations

import numpy as np

from foretell.service.arrays import asked_for

OUTPUTS = {name: np.zeros(1) for name in ("forecast", "margin", "distribution", "one", "other")}


def test_attention_is_what_was_named() -> None:
    assert asked_for(OUTPUTS, ["one"]).keys() == {"forecast", "margin", "distribution", "one"}
    assert asked_for(OUTPUTS, []) is OUTPUTS
    assert asked_for({"forecast": np.zeros(1)}, ["one"]).keys() == {"forecast"}
