"""Softmax attention with rotary positions, the time axis first."""

from __future__ import annotations

import copy

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.export.rewrites.attention import ServedAttention, TimeFirstAttention
from foretell.export.rewrites.biases import bias_of
from foretell.export.rewrites.lookup import Call, rewrites
from foretell.models.attention.rotary import RotaryAttention, Turn


class TimeFirstRotary(TimeFirstAttention):
    """`TimeFirstAttention` with rotary positions; the key's bias is rotated and so stays.

    Batch and heads are one axis while pairs are turned. The scale of the scores may be part of the
    query's weight, because rotation is linear.

    Args:
        plain: The trained layer.
        steps: Number of queries and of keys.
    """

    def __init__(self, plain: RotaryAttention, steps: tuple[int, int]) -> None:
        super().__init__(plain, steps, embedded=True)
        self.key_bias = nn.Buffer(bias_of(plain.key).to(plain.key.weight.dtype))
        self.turn_query = _time_first(plain.turn_query)
        self.turn_key = _time_first(plain.turn_key)

    @override
    def project(self, tokens: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        query = functional.linear(tokens, self.query, self.query_bias)
        key = functional.linear(source, self.key, self.key_bias)
        return _turned(self.turn_query, query), _turned(self.turn_key, key)


@rewrites(RotaryAttention)
def rewrite_rotary(plain: RotaryAttention, call: Call) -> nn.Module:
    """See `ServedAttention`."""
    tokens, source = call.shapes[:2]
    return ServedAttention(TimeFirstRotary(plain, (tokens[1], source[1])))


def _time_first(plain: Turn) -> Turn:
    """A turn of `[time, batch * heads, features]`."""
    turn = copy.deepcopy(plain)
    turn.cosine, turn.sine = plain.cosine[:, None], plain.sine[:, None]
    return turn


def _turned(turn: Turn, features: Tensor) -> Tensor:
    """Turn all heads of `[time * batch, width]`."""
    time, _, size = turn.cosine.shape
    turned: Tensor = turn(features.reshape(time, -1, size))
    return turned.reshape(-1, features.shape[1])
