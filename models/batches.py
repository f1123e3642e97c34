"""How many windows of a model go together.

Wide models take little batches: where channels attend by themselves, memory grows with windows
times channels.
"""

from __future__ import annotations

from foretell.models.forecaster import Forecaster

# Bytes that the arrays of a batch may take.
LIMIT = 256 * 2**20
# More windows at a time gain nothing.
_MOST = 256


def windows_that_fit(model: Forecaster, *, explained: bool = False) -> int:
    """The largest batch of windows to run, at least 1.

    Args:
        model: What runs them.
        explained: Whether all maps are kept, in float64; else one stage at a time, in float32.
    """
    config = model.config
    maps = [sum(stage.sizes.values()) for stage in model.stages]
    features = [
        config.token_width * stage.query.length * (config.channels if stage.per_channel else 1)
        for stage in model.stages
    ]
    series = (config.context + config.horizon) * config.channels
    if explained:
        needed = 8 * (sum(maps) + max(features, default=0) + series)
    else:
        stages = (sum(pair) for pair in zip(maps, features, strict=True))
        needed = 4 * (max(stages, default=0) + series)
    return max(1, min(_MOST, LIMIT // needed))
