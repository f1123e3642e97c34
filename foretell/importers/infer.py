"""What the keys and shapes of a checkpoint tell about its arguments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from torch import Tensor

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.code_base import Architecture, CodeBase
from foretell.importers.errors import ImporterError
from foretell.importers.layouts import Layout
from foretell.importers.registry import CODE_BASES, OPTIONS

_LISTED = 5


class Recognised(NamedTuple):
    """Whose checkpoint it is, of what, and in which form."""

    code: CodeBase
    architecture: Architecture
    layout: Layout


class Inferred(NamedTuple):
    """What a checkpoint tells by itself.

    Attributes:
        arguments: Arguments, by their published names.
        sizes: All sizes, those that are no argument as well.
    """

    arguments: Arguments
    sizes: Mapping[str, int]


def recognise(
    state: Mapping[str, Tensor],
    source: str | None,
    architecture: str | None,
    given: Collection[str] = (),
) -> Recognised:
    """Find the code base and the form of the keys.

    Args:
        state: The checkpoint.
        source: The code base, if it was named.
        architecture: The architecture, if it was named.
        given: Names of arguments that are known; they tell between code bases of the same keys.

    Raises:
        ImporterError: the code base has no such architecture, the keys are those of another, or
            what was not named has to be.
    """
    known = [
        Recognised(code, each, layout)
        for code in CODE_BASES.values()
        for each in code.architectures
        for layout in each.layouts
    ]
    asked = [each for each in known if source in (None, each.code.name)]
    usable, asked = asked, [e for e in asked if architecture in (None, e.architecture.name)]
    if not asked:
        named = " ".join(filter(None, (source, architecture)))
        raise ImporterError(f"{named} is not read; use {_options(usable or known)}")
    counts = {layout: sum(layout.find(key) is not None for key in state) for *_, layout in known}
    most, best = (max(counts[each.layout] for each in group) for group in (known, asked))
    if not most:
        listed = ", ".join(list(state)[:_LISTED])
        raise ImporterError(f"none of its {len(state)} keys is known: {listed}, …")
    if best < most:
        fitting = [each for each in known if counts[each.layout] == most]
        raise ImporterError(
            f"{best} of its {len(state)} keys are those of {_options(asked)}, but {most} are those "
            f"of {fitting[0].layout.title}: use {_options(fitting)}"
        )
    left = [each for each in asked if counts[each.layout] == best]
    overlap = {each.code: len(each.code.options.keys() & set(given)) for each in left}
    left = [each for each in left if overlap[each.code] == max(overlap.values())]
    # Variants that are not read may have the keys of an architecture that is.
    if architecture is None or len({each.code for each in left}) > 1:
        raise ImporterError(f"its keys alone do not tell what it is: use {_options(left)}")
    return left[0]


def _options(fitting: list[Recognised]) -> str:
    sources = dict.fromkeys(each.code.name for each in fitting)
    names = dict.fromkeys(each.architecture.name for each in fitting)
    return f"--from {' or '.join(sources)} --arch {' or '.join(names)}"


def infer(state: Mapping[str, Tensor], architecture: Architecture, layout: Layout) -> Inferred:
    """Read off what the keys and shapes tell.

    Each size counts as often as it occurs, so that one wrong tensor does not change it; of layers
    and heads there are as many as different numbers in keys.
    """
    votes: defaultdict[str, Counter[int]] = defaultdict(Counter)
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for key, tensor in state.items():
        row, found = layout.find(key) or (None, {})
        for name, number in found.items():
            numbers[name].add(number)
        names = row.shape.split() if row is not None else []
        if len(names) == tensor.ndim:
            for name, length in zip(names, tensor.shape, strict=True):
                votes[name][length] += 1
    # Input and output nearly always have the same channels: that decides a draw.
    votes["enc_in"].update(votes["c_out"].keys())
    sizes = {name: counter.most_common(1)[0][0] for name, counter in votes.items() if counter}
    sizes |= {name: len(different) for name, different in numbers.items()}
    told = {name: size for name, size in sizes.items() if name in OPTIONS}
    values = {**told, **layout.arguments, **architecture.infer(state, sizes)}
    return Inferred({name: Argument(value, "the file") for name, value in values.items()}, sizes)
