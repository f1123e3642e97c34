"""Key layouts of published checkpoints: what each key is called here, and its shape.

Placeholders in braces number layers and heads; they and the sizes have the names of the published
code's arguments (`{e_layers}`, `d_model`), so that a file tells the arguments it was made with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from foretell.importers.arguments import Value


class Row(NamedTuple):
    """One key.

    Attributes:
        theirs: The published key.
        ours: Its name here, or None for a key that carries nothing (fixed tables, counters).
        shape: Its sizes, separated by spaces; a convolution of kernel 1 is a linear map here.
    """

    theirs: str
    ours: str | None
    shape: str = ""

    @property
    def pointwise(self) -> bool:
        """Whether the last of three sizes is a kernel of 1, which is left out here."""
        return self.shape.endswith(" 1")


@dataclass(frozen=True, eq=False)
class Layout:
    """The keys of an architecture in one form.

    Attributes:
        title: What to call it in a message.
        arguments: Those that the form of the keys tells.
        rows: All keys it may have.
    """

    title: str
    arguments: Mapping[str, Value]
    rows: tuple[Row, ...]

    def find(self, key: str) -> tuple[Row, dict[str, int]] | None:
        """The row of a published key, and the numbers of layers and heads in the key."""
        for pattern, row in self._theirs:
            if found := pattern.fullmatch(key):
                return row, {name: int(text) for name, text in found.groupdict().items()}
        return None

    def ignores(self, key: str) -> bool:
        """Whether a published key is one that carries nothing."""
        found = self.find(key)
        return found is not None and found[0].ours is None

    def original(self, name: str) -> tuple[str, Row]:
        """The published key of one of our names."""
        for pattern, row in self._ours:
            if found := pattern.fullmatch(name):
                return row.theirs.format(**found.groupdict()), row
        raise KeyError(name)

    @cached_property
    def sizes(self) -> frozenset[str]:
        """The names of all that shapes and numbers tell."""
        numbers = (name for row in self.rows for name in re.findall(_NUMBER, row.theirs))
        return frozenset(numbers).union(*(row.shape.split() for row in self.rows))

    @cached_property
    def _theirs(self) -> list[tuple[re.Pattern[str], Row]]:
        return [(_pattern(row.theirs), row) for row in self.rows]

    @cached_property
    def _ours(self) -> list[tuple[re.Pattern[str], Row]]:
        return [(_pattern(row.ours), row) for row in self.rows if row.ours is not None]


_NUMBER = r"\{(\w+)\}"


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(template)))


def rows(table: str, theirs: str = "", ours: str = "") -> tuple[Row, ...]:
    """Read a table of rows: the published key, our name or `-`, the shape.

    Args:
        table: `*` stands for weight and bias, `**` for all that a BatchNorm has.
        theirs: What every published key begins with.
        ours: What every name of ours begins with.
    """
    found: list[Row] = []
    for key, name, *shape in filter(None, map(str.split, table.splitlines())):
        stem, _, stars = key.partition("*")
        parts = ["weight", "bias"] if key != stem else [""]
        parts += ["running_mean", "running_var", "num_batches_tracked"] if stars else []
        for part in parts:
            sizes = {"bias": shape[:1], "num_batches_tracked": []}.get(part, shape)
            own = None if name == "-" else ours + name.rstrip("*") + part
            found.append(Row(theirs + stem + part, own, " ".join(sizes)))
    return tuple(found)
