"""Mixing of whole tokens along their positions, without queries, keys and heads."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import Form
from foretell.models.attention.mechanism import MECHANISMS, Attended, MechanismConfig, Site


class TokenMixing(MechanismConfig):
    """Mixes all tokens of a layer of an encoder."""

    # Outputs are not weighted means of values, so there are no weights to show.
    form: ClassVar[Form] = "none"

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if site.width not in (None, site.d_model):
            raise ValueError(f"attention: {self.mechanism} mixes whole tokens, not those of heads")
        if site.query != site.key:
            raise ValueError(f"attention: {self.mechanism} is for self-attention alone")


@MECHANISMS.add
class FourierConfig(TokenMixing):
    """The real part of the Fourier transform over positions and features; nothing is learned.

    Lee-Thorp et al., 2021, arXiv:2105.03824, section 3.1.
    """

    mechanism: Literal["fourier"] = "fourier"

    @override
    def build(self, site: Site) -> nn.Module:
        return FourierMixing(site.d_model, site.query.length)


@MECHANISMS.add
class MlpConfig(TokenMixing):
    """A network of two layers along the positions, the same for all features.

    Tolstikhin et al., 2021, arXiv:2105.01601, section 2, equation 1, of which normalisation and
    residual are the layer's.

    Attributes:
        hidden: Width of the network; twice the number of tokens if None.
    """

    mechanism: Literal["mlp"] = "mlp"
    hidden: int | None = Field(
        default=None,
        ge=1,
        description="Width of the network along the tokens; twice their number if not given.",
    )

    @override
    def build(self, site: Site) -> nn.Module:
        length = site.query.length
        return MlpMixing(length, self.hidden or 2 * length)


class FourierMixing(nn.Module):
    """`Re(F X F)` of tokens X, as products with constants: no kernel of a transform is needed.

    With `length = coarse * fine`, position `fine * a + j` and frequency `k + coarse * l`, the
    transform over positions is one over a, `outer`, and for each k one over j, `inner`, which has
    the phases in between. Complex numbers are pairs of real ones.

    Args:
        d_model: Features of a token.
        length: Tokens.
    """

    def __init__(self, d_model: int, length: int) -> None:
        super().__init__()
        coarse, fine = factors(length)
        self.coarse, self.fine = coarse, fine
        k = torch.arange(coarse)
        outer = _turned(k[:, None] * k, coarse).transpose(0, 1).flatten(0, 1)
        frequency = k[:, None] + coarse * torch.arange(fine)
        cos, sin = _turned(frequency[..., None] * torch.arange(fine), length)
        # (cos + i sin) of pairs [real; imaginary], in pairs again.
        inner = torch.stack([torch.cat([cos, -sin], dim=-1), torch.cat([sin, cos], dim=-1)], dim=2)
        cos, sin = _turned(torch.arange(d_model)[:, None] * torch.arange(d_model), d_model)
        self.outer, self.inner, self.last = (
            nn.Buffer(constant.to(torch.get_default_dtype()), persistent=False)
            for constant in (outer, inner.flatten(1, 2), torch.cat([cos, -sin]))
        )

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,  # noqa: ARG002 - the tokens
        *,
        inherited: Tensor | None = None,  # noqa: ARG002 - for those that add to it
        explain: bool = False,  # noqa: ARG002 - there is nothing to show
    ) -> Attended:
        """Mix `tokens` `[batch, time, d_model]`."""
        time, features = tokens.shape[1:]
        coarse, fine = self.coarse, self.fine
        mixed = self.outer @ tokens.reshape(-1, coarse, fine * features)
        mixed = self.inner @ mixed.reshape(-1, coarse, 2 * fine, features)
        mixed = mixed.reshape(-1, coarse, fine, 2 * features) @ self.last
        return Attended(mixed.transpose(1, 2).reshape(-1, time, features))


class MlpMixing(nn.Module):
    """`W2 gelu(W1 X)` of tokens X.

    Args:
        length: Tokens.
        hidden: Width in between.
    """

    def __init__(self, length: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(length, hidden)
        self.contract = nn.Linear(hidden, length)

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,  # noqa: ARG002 - as of FourierMixing, like the two after it
        *,
        inherited: Tensor | None = None,  # noqa: ARG002
        explain: bool = False,  # noqa: ARG002
    ) -> Attended:
        """Mix `tokens` `[batch, time, d_model]`."""
        wide = functional.gelu(self.expand(tokens.transpose(1, 2)))
        return Attended(self.contract(wide).transpose(1, 2))


def factors(length: int) -> tuple[int, int]:
    """The coarse and fine steps with the fewest multiplications: `2 * coarse + 4 * fine` a step."""
    fine = min(
        (fine for fine in range(1, length + 1) if length % fine == 0),
        key=lambda fine: 2 * length // fine + 4 * fine,
    )
    return length // fine, fine


def _turned(steps: Tensor, length: int) -> Tensor:
    """`exp(-2 pi i steps / length)`, its real and its imaginary part."""
    # Whole turns are left out first, in integers: angles stay small and exact.
    angle = (steps % length).double() * (2 * math.pi / length)
    return torch.stack([angle.cos(), -angle.sin()])
