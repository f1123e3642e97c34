"""The position-wise network of a transformer layer."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from foretell.models.layers.dropout import Dropout

Activation = Literal["gelu", "relu"]


class FeedForward(nn.Module):
    """Two linear maps with an activation in between, on each token by itself."""

    def __init__(
        self, d_model: int, d_ff: int, *, activation: Activation, dropout: float, bias: bool = True
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = nn.GELU() if activation == "gelu" else nn.ReLU()
        self.contract = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        hidden = self.dropout(self.activation(self.expand(tokens)))
        return self.dropout(self.contract(hidden))  # type: ignore[no-any-return]
