"""Sparse attention: a softmax over the keys of a pattern, or of several patterns together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import accumulate
from math import isqrt
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage, Form, stage
from foretell.models.attention.areas import (
    Area,
    Mask,
    Pattern,
    Positions,
    columns,
    near,
    strided,
)
from foretell.models.attention.evidence import Dense, Sparse
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import (
    MECHANISMS,
    Attended,
    Call,
    Mechanism,
    MechanismConfig,
    Site,
)


class PatternConfig(MechanismConfig):
    """A softmax over the keys of a pattern: a query always reads itself."""

    has_causal: ClassVar[bool] = True

    @abstractmethod
    def pattern(self, length: int, *, causal: bool) -> Pattern:
        """The pattern of keys at a length."""

    @property
    def extra(self) -> int:
        """Number of learned tokens besides."""
        return 0

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if site.query != site.key:
            raise ValueError(f"attention: {self.mechanism} is for self-attention alone")
        if not site.query.in_time:
            raise ValueError(
                f"attention: {site.query.of} have no order that {self.mechanism} needs"
            )

    @override
    def build(self, site: Site) -> nn.Module:
        return PatternAttention(site, self._at(site), self.extra)

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        pattern = self._at(site)
        # If some queries read everything, all keys have a column.
        form: Form = "dense" if pattern.whole else "sparse"
        kept = None if pattern.whole else len(shown(pattern)[0][0])
        own = stage(
            name,
            self.mechanism,
            form,
            site.heads,
            site.query,
            site.key,
            kept=kept,
            channels=site.channels,
            places=site.places,
        )
        return (own,)

    def _at(self, site: Site) -> Pattern:
        return self.pattern(site.query.length, causal=site.causal)


@MECHANISMS.add
class Local(PatternConfig):
    """Each position reads near ones (the sliding window of arXiv:2004.05150, section 3.1).

    Attributes:
        window: Distance from which on keys are not read.
    """

    mechanism: Literal["local"] = "local"
    window: int = Field(
        default=16, ge=1, description="Positions less than this far from a query are read."
    )

    form: ClassVar[Form] = "sparse"

    @override
    def pattern(self, length: int, *, causal: bool) -> Pattern:
        return Pattern(length, causal, (near(length, self.window, causal=causal),))


@MECHANISMS.add
class Stride(PatternConfig):
    """Each position reads at even distances (Child et al., 2019, arXiv:1904.10509, section 4.3).

    Published beside local attention: `local+stride` in each head, or in heads of their own.

    Attributes:
        dilation: Distance from one key to the next.
    """

    mechanism: Literal["stride"] = "stride"
    dilation: int | None = Field(
        default=None,
        ge=1,
        description="Positions from one key of a query to the next; the root of the length if not "
        "given.",
    )

    form: ClassVar[Form] = "sparse"

    @override
    def pattern(self, length: int, *, causal: bool) -> Pattern:
        return Pattern(length, causal, (strided(length, self.dilation or isqrt(length)),))


@MECHANISMS.add
class Global(PatternConfig):
    """A few tokens read all and are read by all; the others read these and themselves.

    After Longformer (Beltagy et al., 2020, arXiv:2004.05150, section 3.1) and BigBird (Zaheer et
    al., 2020, arXiv:2007.14062, section 2), where local attention is added: `local+global`.

    Attributes:
        global_tokens: Number of global positions of the sequence: the first and others at even
            distances.
        added_tokens: Number of learned global tokens. Their own outputs would be dropped, so they
            are only keys and values that all read. A map has the positions of the sequence alone:
            its rows sum to less than 1 by the share of these tokens.
    """

    mechanism: Literal["global"] = "global"
    global_tokens: int = Field(
        default=4, ge=1, description="Positions that read and are read by all, evenly spread."
    )
    added_tokens: int = Field(default=0, ge=0, description="Further learned tokens that all read.")

    @property
    @override
    def extra(self) -> int:
        return self.added_tokens

    @override
    def pattern(self, length: int, *, causal: bool) -> Pattern:
        count = min(self.global_tokens, length)
        chosen = tuple(i * length // count for i in range(count))
        return Pattern(length, causal, (columns(length, chosen), near(length, 1)), chosen)


@MECHANISMS.add
class Union(PatternConfig):
    """One softmax over the keys of several patterns.

    Attributes:
        patterns: Mechanisms of the patterns.
    """

    mechanism: Literal["union"] = "union"
    patterns: tuple[Mechanism, ...] = Field(min_length=2)

    # Sparse, or dense if some queries read everything.
    form: ClassVar[Form] = "none"
    made_of_others: ClassVar[bool] = True

    @field_validator("patterns")
    @classmethod
    def _are_patterns(cls, patterns: tuple[MechanismConfig, ...]) -> tuple[MechanismConfig, ...]:
        for one in patterns:
            if not isinstance(one, PatternConfig):
                raise ValueError(f"{one.mechanism} is not a pattern of keys, so + cannot join it")
        return patterns

    @property
    @override
    def extra(self) -> int:
        return sum(one.extra for one in self._each())

    @override
    def pattern(self, length: int, *, causal: bool) -> Pattern:
        found = [one.pattern(length, causal=causal) for one in self._each()]
        areas = (area for one in found for area in one.areas)
        whole = {query for one in found for query in one.whole}
        return Pattern(length, causal, tuple(areas), tuple(sorted(whole)))

    def _each(self) -> list[PatternConfig]:
        return [one for one in self.patterns if isinstance(one, PatternConfig)]


def shown(pattern: Pattern) -> tuple[Positions, Positions]:
    """Keys and places of the scores that a sparse map shows, each `[length, kept]`.

    Returns:
        The keys that each query reads, in ascending order, then -1; and where they are among its
        scores, the areas one after the other.
    """
    keys, masks = [], []
    for area, places, mask in pattern.tables():
        keys.append(area.keys[places // area.queries.shape[1]])
        masks.append(mask)
    read = np.concatenate(masks, axis=1)
    key = np.where(read, np.concatenate(keys, axis=1), pattern.length)
    order = np.argsort(key, axis=1)[:, : read.sum(axis=1).max()]
    key = np.take_along_axis(key, order, axis=1)
    return np.where(key < pattern.length, key, -1), order


class Blocks(nn.Module):
    """The products of an area: each block of queries with its keys alone.

    Args:
        area: The area.
        places: Places of all queries in its blocks.
    """

    def __init__(self, area: Area, places: Positions) -> None:
        super().__init__()
        self.blocks, self.rows = area.queries.shape
        length = len(places)
        self.queries = _unless_in_order(area.queries.ravel().clip(0, length - 1), length)
        self.keys = _unless_in_order(area.keys.ravel().clip(0, length - 1), length)
        self.places = _unless_in_order(places, area.queries.size)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores `[batch, heads, length, k]` of rows `[batch, heads, length, features]`."""
        query, key = self._split(query, self.queries), self._split(key, self.keys)
        return self._join(query @ key.transpose(-1, -2))

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """Mixtures `[batch, heads, length, features]` by weights `[batch, heads, length, k]`."""
        return self._join(self._split(weights, self.queries) @ self._split(value, self.keys))

    def _split(self, rows: Tensor, index: Tensor | None) -> Tensor:
        taken = take(rows, index)
        heads, length, width = taken.shape[1:]
        return taken.reshape(-1, heads, self.blocks, length // self.blocks, width)

    def _join(self, blocks: Tensor) -> Tensor:
        heads, _, _, width = blocks.shape[1:]
        return take(blocks.reshape(-1, heads, self.blocks * self.rows, width), self.places)


def take(rows: Tensor, index: Tensor | None) -> Tensor:
    """Some of `[batch, heads, rows, …]`, or all of them."""
    return rows if index is None else rows.index_select(2, index)


def _unless_in_order(index: Positions, count: int) -> nn.Buffer | None:
    """Index of rows to take; None if it is all `count` rows in order."""
    return None if np.array_equal(index, np.arange(count)) else _constant(torch.from_numpy(index))


def _constant(values: Tensor) -> nn.Buffer:
    return nn.Buffer(values, persistent=False)


class PatternAttention(HeadedAttention):
    """Scaled dot-product attention over the keys of a pattern.

    Only the scores of the areas are computed; there is no square map unless it is shown.

    Args:
        site: Place of the attention.
        pattern: Keys that are read.
        extra: Number of learned tokens that are read besides.
    """

    def __init__(self, site: Site, pattern: Pattern, extra: int) -> None:
        super().__init__(site)
        self.pattern = pattern
        tables = pattern.tables()
        self.areas = nn.ModuleList(Blocks(area, places) for area, places, _ in tables)
        self.sizes = [mask.shape[1] for _, _, mask in tables]
        self.mask = _constant(unread(np.concatenate([mask for _, _, mask in tables], axis=1)))
        if pattern.whole:
            whole, positions = np.array(pattern.whole), np.arange(pattern.length)
            replaced = positions.copy()
            replaced[whole] = pattern.length + np.arange(len(whole))
            self.whole = _constant(torch.from_numpy(whole))
            self.replaced = _constant(torch.from_numpy(replaced))
            later = positions > whole[:, None]
            self.whole_mask = _constant(unread(~(later & pattern.causal)))
        else:
            keys, order = shown(pattern)
            starts = sum(self.sizes) * np.arange(pattern.length)
            self.shown_keys = _constant(torch.from_numpy(keys))
            self.shown_places = _constant(torch.from_numpy((starts[:, None] + order).ravel()))
        self.tokens = nn.Parameter(torch.randn(extra, self.query.in_features)) if extra else None

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        query = query * query.shape[-1] ** -0.5
        if call.explain and self.pattern.whole:
            mixed, weights = self._dense(query, key, value, unread(self.pattern.mask()).to(query))
            return Attended(mixed, Dense(weights))

        areas = cast("Iterable[Blocks]", self.areas)

        def add(weights: Tensor) -> Tensor:
            starts = accumulate(self.sizes, initial=0)
            parts = (weights.narrow(-1, *part) for part in zip(starts, self.sizes, strict=False))
            mixed = (area.mix(part, value) for area, part in zip(areas, parts, strict=True))
            return reduce(torch.add, mixed)

        scores = torch.cat([area.scores(query, key) for area in areas], dim=-1)
        mixed, weights = self._attend(query, scores + self.mask, add)
        if self.pattern.whole:
            all_read, _ = self._dense(take(query, self.whole), key, value, self.whole_mask)
            mixed = take(torch.cat([mixed, all_read], dim=2), self.replaced)
        return Attended(mixed, self._sparse(weights) if call.explain else None)

    def _dense(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend from queries to all keys, like `_attend`."""
        scores = query @ key.transpose(-1, -2) + mask
        return self._attend(query, scores, lambda weights: weights @ value)

    def _attend(
        self, query: Tensor, scores: Tensor, mix: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Mixtures of queries, and the weights of keys with scores."""
        count, learned = scores.shape[-1], self.tokens
        if learned is None:
            weights = scores.softmax(dim=-1)
            return mix(self.drop(weights)), weights
        key, value = (self.split(part(learned[None])) for part in (self.key, self.value))
        scores = torch.cat([scores, query @ key.transpose(-1, -2)], dim=-1)
        weights = scores.softmax(dim=-1)
        dropped = self.drop(weights)
        mixed = mix(dropped[..., :count]) + dropped[..., count:] @ value
        return mixed, weights[..., :count]

    def _sparse(self, weights: Tensor) -> Sparse:
        heads, length, _ = weights.shape[1:]
        kept = self.shown_keys.shape[1]
        flat = weights.reshape(-1, heads, length * weights.shape[-1])
        found = take(flat, self.shown_places).reshape(-1, heads, length, kept)
        return Sparse(self.shown_keys.expand_as(found), found)


def unread(mask: Mask) -> Tensor:
    """Summand of scores: 0 where a key is read, and minus infinity elsewhere."""
    return torch.from_numpy(np.where(mask, 0, -np.inf)).float()
