"""Loading a published checkpoint into a model, or saying what is wrong with its keys."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from torch import Tensor

from foretell.importers.errors import ImporterError
from foretell.importers.layouts import Layout
from foretell.models.forecaster import Forecaster

_LISTED = 8
# BatchNorm's, which nothing reads and old versions of torch did not write.
_COUNTER = ".num_batches_tracked"


def load_weights(model: Forecaster, layout: Layout, state: Mapping[str, Tensor]) -> None:
    """Load a published state_dict into a model.

    Args:
        model: The model, of the checkpoint's configuration.
        layout: The form of the keys.
        state: The state_dict under its published keys.

    Raises:
        ImporterError: lists missing, unexpected and mis-shaped keys, each under its published
            name, with what may have happened to it; nothing is loaded.
    """
    names: dict[str, str] = {}
    shapes: dict[str, list[int]] = {}
    ours = model.state_dict()
    for name, tensor in ours.items():
        key, row = layout.original(name)
        names[key] = name
        shapes[key] = [*tensor.shape, 1] if row.pointwise else [*tensor.shape]
    _check_keys(layout, state, shapes)
    found = {
        name: state[key].reshape(ours[name].shape) for key, name in names.items() if key in state
    }
    model.load_state_dict(found, strict=False)


def check_floats(layout: Layout, state: Mapping[str, Tensor]) -> None:
    """Refuse whole numbers and flags where weights are floats: what they stand for is not told.

    Args:
        layout: The form of the keys; what it ignores, or does not know, may be of any type.
        state: The state_dict under its published keys.

    Raises:
        ImporterError: names the first of them.
    """
    for key, tensor in state.items():
        is_weight = layout.find(key) is not None and not layout.ignores(key)
        if is_weight and not tensor.is_floating_point() and not key.endswith(_COUNTER):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ImporterError(
                f"{key} is of type {kind}, and weights are floats; save the model as it was before "
                "it was quantised"
            )


def _check_keys(
    layout: Layout, state: Mapping[str, Tensor], expected: Mapping[str, list[int]]
) -> None:
    shapes = {key: [*tensor.shape] for key, tensor in state.items()}
    missing = [key for key in expected if key not in shapes and not key.endswith(_COUNTER)]
    unexpected = [key for key in shapes if key not in expected and not layout.ignores(key)]
    wrong = [key for key in expected if key in shapes and shapes[key] != expected[key]]

    def renamed(key: str) -> str:
        candidates = [other for other in unexpected if shapes[other] == expected[key]]
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
    }
    listed = "".join(_list(title, lines) for title, lines in problems.items() if lines)
    if listed:
        raise ImporterError(f"not the keys of this {layout.title}:{listed}")


def _list(title: str, lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return f"\n  {title} ({len(lines)}):" + "".join(
        f"\n    {line}" for line in [*lines[:_LISTED], *more]
    )
