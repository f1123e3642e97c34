"""What to say of names: which of those that are known was probably meant, and which there are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# Of names that are alike; one wrong letter in four leaves so much.
_ALIKE = 0.75
# Of a name that is compared.
_LONGEST = 60
# Of those that a message lists.
_LISTED = 20
# Of those that are compared, on either side of a name's place in each order.
_AROUND = 4


class Index:
    """Names of which the nearest to another one is found without comparing all.

    A name that is misspelt in one place begins or ends as it should, so it sorts next to the right
    one, by its letters or by its letters backwards.

    Args:
        names: In any order.

    Attributes:
        names: In alphabetical order.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self._forward = {_key(name): name for name in self.names}
        self._backward = {key[::-1]: name for key, name in self._forward.items()}
        self._orders = [(known, sorted(known)) for known in (self._forward, self._backward)]

    def nearest(self, name: str, alike: float = _ALIKE) -> str | None:
        """As `nearest`, in a time that hardly grows with the number of names."""
        key, around = _key(name), []
        for given, (known, order) in zip((key, key[::-1]), self._orders, strict=True):
            place = bisect_left(order, given)
            around += [known[each] for each in order[max(0, place - _AROUND) : place + _AROUND]]
        return nearest(name, dict.fromkeys(around), alike)


def _key(name: str) -> str:
    # As `plain` in what names are likely to differ in, and quicker.
    return name[:_LONGEST].lower().replace("_", "").replace("-", "").replace(".", "")


def nearest(name: str, known: Iterable[str], alike: float = _ALIKE) -> str | None:
    """The known name that was probably meant by one that is misspelt, cut short or styled anew.

    Args:
        name: What came.
        known: The names that there are.
        alike: How much of two names has to be the same, of 1.
    """
    given, known_as = plain(name), {plain(each): each for each in known}
    if given in known_as:
        return known_as[given]
    cut = [each for each in known_as if len(given) > 2 and each.startswith(given)]
    near = get_close_matches(given, known_as, 1, alike) + cut
    return known_as[near[0]] if near else None


def suggestion(name: str, known: Sequence[str]) -> str:
    """What to say of a name that is not known: which was meant, or which there are."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"there are {listed(known)}"


def listed(names: Sequence[str]) -> str:
    """Names in a message, the first of them where they are many."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(name or "''" for name in names[:_LISTED]) + more


def plain(name: str) -> str:
    """The letters and digits of a name, in one case and in the singular."""
    return "".join(filter(str.isalnum, name[:_LONGEST].lower())).removesuffix("s")
