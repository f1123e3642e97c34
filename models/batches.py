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
# Bytes that training may keep of a batch for its gradients.
_KEPT = 2 * 2**30
# How often a layer keeps its maps and what is inside of it: about, of one with softmax and dropout;
# a window of the wide PatchTST in bench/results/README.md takes what it should by them.
_MAPS, _FEATURES = 3, 3


def windows_that_fit(model: Forecaster, *, explained: bool = False) -> int:
    """The largest batch of windows to run, at least 1.

    Args:
        model: What runs them.
        explained: Whether all maps are kept, in float64; else one stage at a time, in float32.
    """
    config = model.config
    maps, features = _numbers(model)
    series = (config.context + config.horizon) * config.channels
    if explained:
        needed = 8 * (sum(maps) + max(features, default=0) + series)
    else:
        stages = (sum(pair) for pair in zip(maps, features, strict=True))
        needed = 4 * (max(stages, default=0) + series)
    return max(1, min(_MOST, LIMIT // needed))


def are_recomputed(model: Forecaster, windows: int) -> bool:
    """Whether training on batches of so many windows would keep too much of what layers compute."""
    return sum(_kept(model, windows)) > _KEPT


def parts_that_fit(model: Forecaster, windows: int) -> int:
    """In how many parts such a batch goes through a layer that is computed again, at least 1."""
    return max(1, -(-max(_kept(model, windows), default=0) // LIMIT))


def _kept(model: Forecaster, windows: int) -> list[int]:
    """Bytes that training keeps of the inside of each stage's layer."""
    pairs = zip(*_numbers(model), strict=True)
    return [4 * windows * (_MAPS * maps + _FEATURES * features) for maps, features in pairs]


def _numbers(model: Forecaster) -> tuple[list[int], list[int]]:
    """Of each stage, for a window: the numbers of its maps, and of what it attends from."""
    config = model.config
    maps = [sum(stage.sizes.values()) for stage in model.stages]
    features = [
        config.token_width * stage.query.length * (config.channels if stage.per_channel else 1)
        for stage in model.stages
    ]
    return maps, features
