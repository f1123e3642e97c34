"""Suggestions for unknown names: the nearest known name, or a list of known names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# Least similarity of two names: one wrong letter in four.
_ALIKE = 0.75
# Most letters of a name that are compared.
_LONGEST = 60
# Most names that a message lists.
_LISTED = 20
# Number of names compared on either side of a name's place in each order.
_AROUND = 4


class Index:
    """Names, with a search for the nearest one that does not compare all.

    A name with one misspelling begins or ends correctly. So it sorts next to the right name, either
    by its letters or by its letters backwards.

    Args:
        names: Names in any order.

    Attributes:
        names: Names in alphabetical order.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self._forward = {_key(name): name for name in self.names}
        self._backward = {key[::-1]: name for key, name in self._forward.items()}
        self._orders = [(known, sorted(known)) for known in (self._forward, self._backward)]

    def nearest(self, name: str, alike: float = _ALIKE) -> str | None:
        """As the function `nearest`; the time hardly grows with the number of names."""
        key, around = _key(name), []
        for given, (known, order) in zip((key, key[::-1]), self._orders, strict=True):
            place = bisect_left(order, given)
            around += [known[each] for each in order[max(0, place - _AROUND) : place + _AROUND]]
        return nearest(name, dict.fromkeys(around), alike)


def _key(name: str) -> str:
    # A faster approximation of `plain`.
    return name[:_LONGEST].lower().replace("_", "").replace("-", "").replace(".", "")


def nearest(name: str, known: Iterable[str], alike: float = _ALIKE) -> str | None:
    """The known name that a misspelt, shortened or differently styled name probably means.

    Args:
        name: The unknown name.
        known: Known names.
        alike: Least similarity of two names, from 0 to 1.
    """
    given, known_as = plain(name), {plain(each): each for each in known}
    if given in known_as:
        return known_as[given]
    cut = [each for each in known_as if len(given) > 2 and each.startswith(given)]
    near = get_close_matches(given, known_as, 1, alike) + cut
    return known_as[near[0]] if near else None


def suggestion(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: the nearest name, or the known names."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"there are {listed(known)}"


def listed(names: Sequence[str]) -> str:
    """Names for a message; of many, the first ones."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(name or "''" for name in names[:_LISTED]) + more


def plain(name: str) -> str:
    """The letters and digits of a name, in one case and in the singular."""
    return "".join(filter(str.isalnum, name[:_LONGEST].lower())).removesuffix("s")
