"""What to say of names: which of those that are known was probably meant, and which there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# Of names that are alike; one wrong letter in four leaves so much.
_ALIKE = 0.75
# Of a name that is compared.
_LONGEST = 60
# Of those that a message lists.
_LISTED = 20


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
