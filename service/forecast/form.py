"""The types of JSON requests with series, and the form of large ones: which fields are read."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from foretell.service.forecast.requests import SCENARIOS
from foretell.service.validation import KnownFields

# Any name in a path.
ANY = "*"


@dataclass(frozen=True)
class Form:
    """The fields of a request that are read.

    Paths are the levels of `KnownFields`: `` is the request, `inputs[]` one of its inputs.

    Attributes:
        objects: Fields of objects by path. The first unknown fields are kept without values.
        texts: Lists of any length, without lists and objects in them.
        nested: Lists of any length, or of such lists.
        numbers: Lists of any length that become arrays of float64, `[time]` or `[time, channel]`,
            if they only hold numbers and nulls; null becomes `NULL`.
        named: Objects with any names; `ANY` stands for a name in the path of its value.
    """

    objects: Mapping[str, Mapping[str, Any]]
    texts: Set[str] = frozenset()
    nested: Set[str] = frozenset()
    numbers: Set[str] = frozenset()
    named: Set[str] = frozenset()


@dataclass(frozen=True)
class RequestType:
    """The wire type of JSON requests with series, and their fields."""

    envelope: type[Any]
    names: KnownFields

    @cached_property
    def form(self) -> Form:
        levels = self.names.levels
        kinds = ("past", "future", "static")
        named = {f"inputs[].{kind}_covariates" for kind in kinds}
        named.add(f"{SCENARIOS}.future_covariates")
        texts = {"inputs[].timestamps", *(f"{path}.{ANY}" for path in named)}
        return Form(levels, texts=texts, numbers={"inputs[].series"}, named=named)
