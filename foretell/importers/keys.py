"""Maps from published keys to our names, and loading of checkpoints with them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from foretell.importers.errors import ImporterError
from foretell.models.forecaster import Forecaster

# The published key and our name; None for a key without weights, such as fixed tables or counters.
Row = tuple[str, str | None]
_LISTED = 8
# Counter of BatchNorm, which nothing reads and old versions of torch did not write.
_COUNTER = ".num_batches_tracked"
# Counter of torch's averaged models.
_COUNTS = frozenset({"n_averaged"})


def rows(table: str, published: str = "", ours: str = "") -> list[Row]:
    """Read a table with a published key and our name, or `-`, in each line.

    Args:
        table: Lines; `{name}` means a number, `*` weight and bias, `**` all tensors of a BatchNorm.
        published: Prefix of the published keys.
        ours: Prefix of our names.
    """
    found: list[Row] = []
    for key, name in filter(None, map(str.split, table.splitlines())):
        stem, _, stars = key.partition("*")
        parts = ["weight", "bias"] if key != stem else [""]
        parts += ["running_mean", "running_var", "num_batches_tracked"] if stars else []
        own = None if name == "-" else ours + name.rstrip("*")
        found += [(published + stem + part, own and own + part) for part in parts]
    return found


class KeyMap:
    """The keys of a published model.

    Args:
        title: Name of the model in messages.
        rows: Published keys and our names.
    """

    def __init__(self, title: str, rows: Iterable[Row]) -> None:
        self.title = title
        found = dict(rows)
        self._known = [_pattern(published) for published in found]
        self._ignored = [_pattern(published) for published, ours in found.items() if ours is None]
        self._ours = {
            _pattern(ours): published for published, ours in found.items() if ours is not None
        }

    def knows(self, key: str) -> bool:
        """Whether a published key belongs to the model."""
        return any(pattern.fullmatch(key) for pattern in self._known)

    def ignores(self, key: str) -> bool:
        """Whether a published key has no weights."""
        return any(pattern.fullmatch(key) for pattern in self._ignored)

    def original(self, name: str) -> str:
        """The published key of one of our names.

        Raises:
            KeyError: the name has no published key.
        """
        for pattern, published in self._ours.items():
            if found := pattern.fullmatch(name):
                return published.format(**found.groupdict())
        raise KeyError(name)


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(template)))


def load_weights(model: Forecaster, keys: KeyMap, state: Mapping[str, Tensor]) -> None:
    """Load a published state_dict into a model.

    A convolution with kernel 1 becomes a linear map.

    Args:
        model: The model, with the configuration of the checkpoint.
        keys: Keys of the checkpoint.
        state: The state_dict under its published keys.

    Raises:
        ImporterError: keys are missing, unexpected, of another shape or of whole numbers. The
            message lists them by their published names, with likely causes.
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
    """The state_dict without the prefixes of wrappers.

    Data parallelism adds `module.`, compilation `_orig_mod.`, Lightning the name of the attribute
    that holds the model, and they may be nested. A prefix is removed if more keys of a model follow
    it than occur without it, and if most keys with it are keys of a model. Other keys stay.

    Raises:
        ImporterError: several prefixes fit, so the file holds several models.
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
    """The number of known keys behind each prefix."""
    counts = Counter({"": 0})
    for key in state:
        ends = [0, *(found.end() for found in re.finditer(r"\.", key))]
        counts.update(key[:end] for end in ends if keys.knows(key[end:]))
    return counts
