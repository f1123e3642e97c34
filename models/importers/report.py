"""What is wrong with the keys of a checkpoint, in the words of the code it comes from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from torch import Tensor

from foretell.models.importers.errors import ImporterError
from foretell.models.importers.layouts import Layout

_LISTED = 8
# BatchNorm's counter, which old versions of torch did not write.
_OPTIONAL = ".num_batches_tracked"


def check_keys(
    layout: Layout, theirs: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Compare a published state_dict with that of the model it should fill.

    Args:
        layout: The form of its keys.
        theirs: The published state_dict.
        expected: The model's, under our names.

    Raises:
        ImporterError: lists missing, unexpected and mis-shaped keys, each under its published
            name, with what may have happened to it.
    """
    wanted: dict[str, tuple[int, ...]] = {}
    for name, tensor in expected.items():
        key, row = layout.original(name)
        wanted[key] = (*tensor.shape, 1) if row.pointwise else tuple(tensor.shape)
    ignored = {
        key for key in theirs if (match := layout.find(key)) is not None and match.row.ours is None
    }
    missing = [key for key in wanted if key not in theirs and not key.endswith(_OPTIONAL)]
    unexpected = [key for key in theirs if key not in wanted and key not in ignored]
    misshaped = [
        key for key, shape in wanted.items() if key in theirs and tuple(theirs[key].shape) != shape
    ]
    groups = [
        _group(
            "missing", [_explain_missing(key, wanted[key], unexpected, theirs) for key in missing]
        ),
        _group("unexpected", [f"{key} {list(theirs[key].shape)}" for key in unexpected]),
        _group(
            "of another shape",
            [_explain_shape(key, tuple(theirs[key].shape), wanted[key]) for key in misshaped],
        ),
    ]
    found = [group for group in groups if group]
    if found:
        raise ImporterError(f"not the keys of this {layout.title}:\n" + "\n".join(found))


def _group(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = [f"    … and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join(
        [f"  {title} ({len(lines)}):", *(f"    {line}" for line in lines[:_LISTED]), *more]
    )


def _explain_missing(
    key: str, shape: tuple[int, ...], unexpected: Sequence[str], theirs: Mapping[str, Tensor]
) -> str:
    candidates = [other for other in unexpected if tuple(theirs[other].shape) == shape]
    near = difflib.get_close_matches(key, candidates, n=1, cutoff=0.6)
    hint = f": renamed to {near[0]}?" if near else ""
    return f"{key} {list(shape)}{hint}"


def _explain_shape(key: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    hint = ": transposed?" if sorted(found) == sorted(wanted) else ""
    return f"{key} is {list(found)}, expected {list(wanted)}{hint}"
