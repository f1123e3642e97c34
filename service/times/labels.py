"""The times of forecast steps, written as JSON."""

from __future__ import annotations

import numpy as np
import orjson

from foretell.bundle.timestamps import offset_suffix, render
from foretell.service.times.timeline import Timeline


def write_labels(timeline: Timeline, steps: int) -> bytes:
    """A JSON list of the first forecast steps' times, `Timeline.labels(0, steps)`."""
    walls, offset = timeline.read(0, steps)
    if isinstance(offset, np.ndarray):
        return orjson.dumps(render(walls, offset))
    try:
        # Without a Python object a step, in a quarter of the time.
        labels = orjson.dumps(walls, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        # On the last day of the year 9999.
        return orjson.dumps(render(walls, offset))
    if offset is None:
        return labels
    end = offset_suffix(offset).encode() + b'"'
    return labels[:-1].replace(b'",', end + b",")[:-1] + end + b"]"
