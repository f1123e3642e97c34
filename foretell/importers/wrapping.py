"""Prefixes that wrappers put before the keys of a model.

Data parallelism has `module.`, compilation `_orig_mod.`, Lightning the name of the attribute that
holds the model, often `model.` or `net.`; and they may be nested. None of these names is known
here: a prefix is one behind which the keys of a model stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from torch import Tensor

from foretell.importers.errors import ImporterError
from foretell.importers.layouts import Layout

# What torch's averaged models count beside the weights.
_COUNTS = frozenset({"n_averaged"})


def unwrap(state: Mapping[str, Tensor], layouts: Iterable[Layout]) -> dict[str, Tensor]:
    """The state_dict without what wrappers put before its keys.

    A prefix is taken away where more keys of a layout are found behind it than without it, and
    most of those that begin with it are. Other keys stay as they are.

    Raises:
        ImporterError: there are several such prefixes, and so several models.
    """
    found = max((_prefixes(state, layout) for layout in layouts), key=_most)
    if not found or found[""] == _most(found):
        return dict(state)
    best = [
        prefix
        for prefix, count in found.items()
        if count == _most(found) and 2 * count > sum(key.startswith(prefix) for key in state)
    ]
    if not best:
        return dict(state)
    if len(best) > 1:
        names = ", ".join(f"{prefix}*" for prefix in best)
        raise ImporterError(
            f"holds {len(best)} models, {names}; save the state_dict of one of them alone"
        )
    (prefix,) = best
    return {key.removeprefix(prefix): tensor for key, tensor in state.items() if key not in _COUNTS}


def _prefixes(state: Mapping[str, Tensor], layout: Layout) -> Counter[str]:
    """How many keys of a layout are found behind each prefix."""
    counts: Counter[str] = Counter()
    for key in state:
        parts = key.split(".")
        for place in range(len(parts)):
            if layout.find(".".join(parts[place:])) is not None:
                counts["".join(f"{part}." for part in parts[:place])] += 1
    return counts


def _most(counts: Counter[str]) -> int:
    return max(counts.values(), default=0)
