"""Sizes of batches by the memory that a model needs.

Wide models take small batches: if each channel attends by itself, memory grows with windows times
channels.
"""

from __future__ import annotations

from foretell.models.forecaster import Forecaster

# Bytes that the arrays of a batch may take.
LIMIT = 256 * 2**20
# Larger batches are not faster.
_MOST = 256
# Bytes that training may keep of a batch for its gradients.
_KEPT = 2 * 2**30
# Copies of its maps and of its features that a layer with softmax and dropout keeps, roughly. The
# wide PatchTST in bench/results/README.md takes as much memory as they predict.
_MAPS, _FEATURES = 3, 3


def windows_that_fit(model: Forecaster, *, explained: bool = False) -> int:
    """The largest batch of windows to run, at least 1.

    Args:
        model: Model that runs them.
        explained: Whether all maps are kept, in float64; else those of one stage at a time, in
            float32.
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
    """Whether training on batches of this size would keep too many activations."""
    return sum(_kept(model, windows)) > _KEPT


def parts_that_fit(model: Forecaster, windows: int) -> int:
    """Number of parts, at least 1, in which a batch goes through a layer that is recomputed."""
    return max(1, -(-max(_kept(model, windows), default=0) // LIMIT))


def _kept(model: Forecaster, windows: int) -> list[int]:
    """Bytes that training keeps of the inside of each stage's layer."""
    pairs = zip(*_numbers(model), strict=True)
    return [4 * windows * (_MAPS * maps + _FEATURES * features) for maps, features in pairs]


def _numbers(model: Forecaster) -> tuple[list[int], list[int]]:
    """Numbers of a window in each stage: of its maps, and of its layer's features."""
    config = model.config
    maps = [sum(stage.sizes.values()) for stage in model.stages]
    features = [
        config.token_width * stage.query.length * (config.channels if stage.per_channel else 1)
        for stage in model.stages
    ]
    return maps, features
