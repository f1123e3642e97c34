"""Attention as answers have it, of every form."""

from typing import Any

TIMES = [f"2024-01-01T0{hour}:00:00+01:00" for hour in range(2, 8)]
# The first two forecast steps are the last two of them.
FIRST = TIMES[4]

CIRCULANT: dict[str, Any] = {
    "name": "encoder.0.self",
    "kind": "autocorrelation",
    "form": "circulant",
    "shape": [4, 4],
    "axes": ["query", "key"],
    "weights": [[0.25, 0, 0, 0.75], [0.75, 0.25, 0, 0], [0, 0.75, 0.25, 0], [0, 0, 0.75, 0.25]],
    "query": TIMES[:4],
    "key": TIMES[:4],
    "lags": [0, 3],
    "lag_durations": ["PT0H", "PT72H"],
    "lag_weights": [0.25, 0.75],
    "correlation": [1.5, 0.5, -1, 2],
}
DENSE: dict[str, Any] = {
    "name": "decoder.0.cross",
    "kind": "softmax",
    "form": "dense",
    "shape": [4, 4],
    "axes": ["query", "key"],
    "weights": [[1, 0, 0, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], [0.6, 0, 0.4, 0]],
    "query": TIMES[2:],
    "key": TIMES[:4],
}
PATCHES: dict[str, Any] = {
    "name": "encoder.1.self",
    "kind": "softmax",
    "form": "dense",
    "shape": [2, 3, 3],
    "axes": ["channel", "query", "key"],
    "channels": ["wind", "load"],
    "weights": [[[0.5, 0.5, 0]] * 3, [[1, 0, 0]] * 3],
    "query": [{"start": TIMES[0], "end": TIMES[1]}, {"start": TIMES[2], "end": TIMES[3]}, None],
    "key": [{"start": TIMES[0], "end": TIMES[1]}, {"start": TIMES[2], "end": TIMES[3]}, None],
}
CHANNELS: dict[str, Any] = {
    "name": "encoder.2.self",
    "kind": "softmax",
    "form": "dense",
    "shape": [2, 2],
    "axes": ["query", "key"],
    "weights": [[0.5, 0.5], [0, 1]],
    "query": ["wind", "load"],
    "key": ["wind", "load"],
}
NONE: dict[str, Any] = {"name": "encoder.3.self", "kind": "mixing", "form": "none"}
ALL = [CIRCULANT, DENSE, PATCHES, CHANNELS, NONE]
