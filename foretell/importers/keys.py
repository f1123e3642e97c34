"""Published keys under our names, and loading a checkpoint by them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from foretell.importers.errors import ImporterError
from foretell.models.forecaster import Forecaster

# The published key and our name, or None for a key that carries nothing (fixed tables, counters).
Row = tuple[str, str | None]
_LISTED = 8
# BatchNorm's, which nothing reads and old versions of torch did not write.
_COUNTER = ".num_batches_tracked"
# What torch's averaged models count beside the weights.
_COUNTS = frozenset({"n_averaged"})


def rows(table: str, theirs: str = "", ours: str = "") -> list[Row]:
    """Read a table with a published key and our name, or `-`, in each line.

    Args:
        table: `{name}` stands for a number, `*` for weight and bias, `**` for all of a BatchNorm.
        theirs: What every published key begins with.
        ours: What every name of ours begins with.
    """
    found: list[Row] = []
    for key, name in filter(None, map(str.split, table.splitlines())):
        stem, _, stars = key.partition("*")
        parts = ["weight", "bias"] if key != stem else [""]
        parts += ["running_mean", "running_var", "num_batches_tracked"] if stars else []
        own = None if name == "-" else ours + name.rstrip("*")
        found += [(theirs + stem + part, own and own + part) for part in parts]
    return found


class KeyMap:
    """The keys of a published model.

    Args:
        title: What to call the model in a message.
        rows: Its keys and our names.
    """

    def __init__(self, title: str, rows: Iterable[Row]) -> None:
        self.title = title
        found = dict(rows)
        self._known = [_pattern(theirs) for theirs in found]
        self._ignored = [_pattern(theirs) for theirs, ours in found.items() if ours is None]
        self._ours = {_pattern(ours): theirs for theirs, ours in found.items() if ours is not None}

    def knows(self, key: str) -> bool:
        """Whether a published key is one of the model."""
        return any(pattern.fullmatch(key) for pattern in self._known)

    def ignores(self, key: str) -> bool:
        """Whether it is one that carries nothing."""
        return any(pattern.fullmatch(key) for pattern in self._ignored)

    def original(self, name: str) -> str:
        """The published key of one of our names.

        Raises:
            KeyError: there is none.
        """
        for pattern, theirs in self._ours.items():
            if found := pattern.fullmatch(name):
                return theirs.format(**found.groupdict())
        raise KeyError(name)


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(template)))


def load_weights(model: Forecaster, keys: KeyMap, state: Mapping[str, Tensor]) -> None:
    """Load a published state_dict into a model.

    A convolution of kernel 1 is a linear map here.

    Args:
        model: The model, of the checkpoint's configuration.
        keys: Those of the checkpoint.
        state: The state_dict under its published keys.

    Raises:
        ImporterError: lists missing, unexpected and mis-shaped keys, each under its published
            name, with what may have happened to it, and those of whole numbers; nothing is loaded.
    """
    ours = model.state_dict()
    names = {keys.original(name): name for name in ours}
    found = {key: _as_linear(each, ours.get(names.get(key, ""))) for key, each in state.items()}
    expected = {key: [*ours[name].shape] for key, name in names.items()}
    _check_keys(keys, found, expected)
    model.load_state_dict(
        {name: found[key] for key, name in names.items() if key in found}, strict=False
    )


def _as_linear(tensor: Tensor, expected: Tensor | None) -> Tensor:
    if expected is None or tensor.ndim != expected.ndim + 1 or tensor.shape[-1] != 1:
        return tensor
    return tensor.squeeze(-1)


def _check_keys(
    keys: KeyMap, found: Mapping[str, Tensor], expected: Mapping[str, list[int]]
) -> None:
    shapes = {key: [*each.shape] for key, each in found.items()}
    floats = [key for key in expected if not key.endswith(_COUNTER)]
    whole = [key for key in floats if key in found and not found[key].is_floating_point()]
    missing = [key for key in floats if key not in shapes]
    unexpected = [key for key in shapes if key not in expected and not keys.ignores(key)]
    wrong = [key for key in expected if key in shapes and shapes[key] != expected[key]]

    def renamed(key: str) -> str:
        alike = expected[key], [*expected[key], 1]
        candidates = [other for other in unexpected if shapes[other] in alike]
        near = difflib.get_close_matches(key, candidates, n=1)
        return f": renamed to {near[0]}?" if near else ""

    def transposed(key: str) -> str:
        return ": transposed?" if sorted(shapes[key]) == sorted(expected[key]) else ""

    problems = {
        "missing": [f"{key} {expected[key]}{renamed(key)}" for key in missing],
        "unexpected": [f"{key} {shapes[key]}" for key in unexpected],
        "of another shape": [
            f"{key} is {shapes[key]}, expected {expected[key]}{transposed(key)}" for key in wrong
        ],
        "of whole numbers; save the model as it was before it was quantised": [
            f"{key} is of type {str(found[key].dtype).removeprefix('torch.')}" for key in whole
        ],
    }
    listed = "".join(_list(title, lines) for title, lines in problems.items() if lines)
    if listed:
        raise ImporterError(f"not the keys of this {keys.title}:{listed}")


def _list(title: str, lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return f"\n  {title} ({len(lines)}):" + "".join(
        f"\n    {line}" for line in [*lines[:_LISTED], *more]
    )


def unwrap(state: Mapping[str, Tensor], maps: Iterable[KeyMap]) -> dict[str, Tensor]:
    """The state_dict without what wrappers put before its keys.

    Data parallelism puts `module.` there, compilation `_orig_mod.`, Lightning the name of the
    attribute that holds the model, and they may be nested. None of these names is known here: a
    prefix is taken away where more keys of a model are found behind it than without it, and most of
    those that begin with it are. Other keys stay as they are.

    Raises:
        ImporterError: there are several such prefixes, and so several models.
    """
    found = max((_prefixes(state, keys) for keys in maps), key=lambda each: max(each.values()))
    most = max(found.values())
    best = [
        prefix
        for prefix, count in found.items()
        if count == most and 2 * count > sum(key.startswith(prefix) for key in state)
    ]
    if not best or found[""] == most:
        return dict(state)
    if len(best) > 1:
        names = ", ".join(f"{prefix}*" for prefix in best)
        raise ImporterError(
            f"holds {len(best)} models, {names}; save the state_dict of one of them alone"
        )
    return {key.removeprefix(best[0]): each for key, each in state.items() if key not in _COUNTS}


def _prefixes(state: Mapping[str, Tensor], keys: KeyMap) -> Counter[str]:
    """How many keys of a model are found behind each prefix."""
    counts = Counter({"": 0})
    for key in state:
        ends = [0, *(found.end() for found in re.finditer(r"\.", key))]
        counts.update(key[:end] for end in ends if keys.knows(key[end:]))
    return counts
