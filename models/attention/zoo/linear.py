"""Products of features instead of a softmax: linear in the length.

Linear attention (Katharopoulos et al., 2020, arXiv:2006.16236), random features (Peng et al., 2021,
arXiv:2103.02143) and the Performer's FAVOR+ (Choromanski et al., 2020, arXiv:2009.14794).
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from math import ceil, log
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site

# Smaller features count as e to this power: if all were 0, so would be the sum of the weights.
FLOOR = -20.0
# With fewer random directions too many sums of weights are near 0.
FEWEST = 32
# Lower limit of a Performer's features of queries, whose largest is 1: no sum of weights is 0.
SMALLEST = 1e-20
# Steps of a chunk, which are compared with each other; earlier ones are read by their sum.
CHUNK = 32

Projections = Annotated[
    int | None,
    Field(
        ge=1,
        description="Random directions for features of a head; the default depends on its width.",
    ),
]


class Features(NamedTuple):
    """Features whose products are the weights.

    Attributes:
        query: `[batch, heads, query, features]`.
        key: `[batch, heads, key, features]`.
        scale: `[batch, heads, key, 1]`, logarithm of a factor of all features of a key; 0 if None.
    """

    query: Tensor
    key: Tensor
    scale: Tensor | None = None


class FeatureAttention(HeadedAttention):
    """Reads the values by products of features of query and key, divided by the sum of these.

    All products are computed only as evidence. The sums are never in half precision, because sums
    over all steps need more digits.

    Attributes:
        smallest: Lower limit of the sum of the weights of a query, if it may be 0.
    """

    smallest: ClassVar[float | None] = None

    @abstractmethod
    def features(self, query: Tensor, key: Tensor) -> Features:
        """Map queries `[batch, heads, query, width]` and keys `[batch, heads, key, width]`."""

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        device, dtype = query.device.type, value.dtype
        reduced = torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if reduced else nullcontext():
            query, key, value = (
                part.float() if part.itemsize < 4 else part for part in (query, key, value)
            )
            found = self.features(query, key)
            # The sum of the weights is their mixture of ones.
            value = functional.pad(value, (0, 1), value=1.0)
            mixer = _causal if self.causal else _mixed
            summed = mixer(found.query, found.key, value, found.scale)
            mixed = summed[..., :-1] / self._bounded(summed[..., -1:])
            return Attended(mixed.to(dtype), Dense(self._map(found)) if call.explain else None)

    def _map(self, found: Features) -> Tensor:
        weights = found.query @ found.key.transpose(-1, -2)
        if self.causal:
            weights = weights.tril()
        if found.scale is not None:
            scale = found.scale.transpose(-1, -2)
            weights = weights * (scale + _later(scale) if self.causal else scale).softmax(dim=-1)
        return weights / self._bounded(weights.sum(dim=-1, keepdim=True))

    def _bounded(self, total: Tensor) -> Tensor:
        return total if self.smallest is None else total.clamp(min=self.smallest)


@MECHANISMS.add
class LinearConfig(MechanismConfig):
    """Weights are products of positive features, elu + 1: linear in the length."""

    mechanism: Literal["linear"] = "linear"
    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return LinearAttention(site)


class LinearAttention(FeatureAttention):
    """Equation 5 of the paper, 9 if causal, with the features of equation 7."""

    @override
    def features(self, query: Tensor, key: Tensor) -> Features:
        return Features(_positive(query), _positive(key))


def _positive(part: Tensor) -> Tensor:
    """`elu + 1` without the rounding of that sum."""
    return part.clamp(FLOOR, 0.0).exp() + part.relu()


@MECHANISMS.add
class RandomFeaturesConfig(MechanismConfig):
    """Weights are products of random sines and cosines, near a softmax: linear in the length.

    Attributes:
        features: Random directions, each of which makes a sine and a cosine.
    """

    mechanism: Literal["random-features"] = "random-features"
    features: Projections = None

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return RandomFeatureAttention(site, self.features)


class RandomFeatureAttention(FeatureAttention):
    """Section 3.1 of the paper, without a gate.

    For queries and keys of length 1 a Gaussian kernel is a softmax, and these features are an
    estimate of it. Weights of few features may be negative: as in the published code, their sum for
    a query counts as 0.1 at least, and below that they do not sum to 1.

    Args:
        site: Place of the attention.
        features: Random directions; if None, as many as a head is wide, and at least 32.

    Attributes:
        sigma: Factors of the directions of a head: how narrow the kernel is along each feature.
        projection: `[heads, width, features]`.
    """

    smallest: ClassVar[float | None] = 0.1

    def __init__(self, site: Site, features: int | None) -> None:
        super().__init__(site)
        width = site.head_width
        directions = torch.randn(self.heads, width, features or max(width, FEWEST))
        self.sigma = nn.Parameter(torch.ones(self.heads, width, 1))
        self.projection = nn.Buffer(directions)

    @override
    def features(self, query: Tensor, key: Tensor) -> Features:
        query, key = self._waves(query), self._waves(key)
        return Features(query / self.projection.shape[-1], key)

    def _waves(self, part: Tensor) -> Tensor:
        length = ((part * part).sum(dim=-1, keepdim=True) + 1e-20).sqrt()
        angles = (part / length) @ (self.sigma * self.projection)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


@MECHANISMS.add
class PerformerConfig(MechanismConfig):
    """Weights are products of random exponentials, near a softmax: linear in the length.

    Attributes:
        features: Random directions, each of which makes a feature; d ln d of d if None.
        redraw: Steps of training after which the directions are drawn anew.
    """

    mechanism: Literal["performer"] = "performer"
    features: Projections = None
    redraw: int | None = Field(
        default=None, ge=1, description="Steps of training after which directions are drawn anew."
    )

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return Performer(site, self)


class Performer(FeatureAttention):
    """Lemma 1 and section 2.4 of the paper.

    A factor that all features of a query share cancels out, and so does one of all keys. So the
    largest exponent of each query is subtracted, and that of each key, which `scale` restores.

    Args:
        site: Place of the attention.
        config: Settings of the mechanism. By default there are d ln d directions in heads of d
            features, and at least d.

    Attributes:
        projection: `[width, features]`, of all heads.
        calls: Number of calls in training.
    """

    def __init__(self, site: Site, config: PerformerConfig) -> None:
        super().__init__(site)
        self.redraw = config.redraw
        width = site.head_width
        count = config.features or max(width, ceil(width * log(width)))
        self.projection: Tensor = nn.Buffer(orthogonal(width, count))
        self.calls: Tensor = nn.Buffer(torch.zeros((), dtype=torch.int64))

    @override
    def features(self, query: Tensor, key: Tensor) -> Features:
        if self.training and self.redraw is not None:
            self.calls = self.calls + 1
            if self.calls % self.redraw == 0:
                # A new tensor, because earlier calls keep the old one for their gradients.
                self.projection = orthogonal(*self.projection.shape).to(self.projection)
        query, key = (part * part.shape[-1] ** -0.25 for part in (query, key))
        exponents = query @ self.projection
        # A minimum and not a sum: an exporter would drop such a small summand.
        query = (
            (exponents - exponents.detach().amax(dim=-1, keepdim=True)).exp().clamp(min=SMALLEST)
        )
        exponents = key @ self.projection
        largest = exponents.detach().amax(dim=-1, keepdim=True)
        norms = (key * key).sum(dim=-1, keepdim=True) / 2
        return Features(query, (exponents - largest).exp(), largest - norms)


def orthogonal(width: int, count: int) -> Tensor:
    """Directions `[width, count]`, orthogonal by blocks, with the lengths of normal vectors."""
    squares = [torch.linalg.qr(torch.randn(width, width)) for _ in range(-(-count // width))]
    # With these signs all directions are equally likely.
    directions = torch.cat([q * r.diagonal().sign() for q, r in squares], dim=1)[:, :count]
    scaled: Tensor = directions * torch.randn(width, count).square().sum(dim=0).sqrt()
    return scaled


def _mixed(query: Tensor, key: Tensor, value: Tensor, scale: Tensor | None) -> Tensor:
    """Mixtures `[batch, heads, query, width]`, up to a factor for each query."""
    key = key.transpose(-1, -2)
    if scale is not None:
        key = key * scale.transpose(-1, -2).softmax(dim=-1)
    return query @ (key @ value)


def _causal(query: Tensor, key: Tensor, value: Tensor, scale: Tensor | None) -> Tensor:
    """Causal mixtures, like `_mixed`: within chunks, and of the sums of earlier chunks."""
    heads, steps = query.shape[1:3]
    count = -(-steps // CHUNK)
    size = -(-steps // count)

    def chunks(part: Tensor) -> Tensor:
        padded = functional.pad(part, (0, 0, 0, count * size - steps))
        return padded.reshape(-1, heads, count, size, part.shape[-1])

    query, key, value = chunks(query), chunks(key).transpose(-1, -2), chunks(value)
    own = (query @ key).tril()
    if scale is not None:
        mixed = _scaled(query, own, key, value, chunks(scale).transpose(-1, -2))
    else:
        mixed = own @ value
        if count > 1:
            sums = (key @ value)[:, :, :-1].cumsum(dim=2)
            mixed = mixed + query @ functional.pad(sums, (0, 0, 0, 0, 1, 0))
    return mixed.reshape(-1, heads, count * size, value.shape[-1])[:, :, :steps]


def _scaled(query: Tensor, own: Tensor, key: Tensor, value: Tensor, scale: Tensor) -> Tensor:
    """Mixtures of chunks whose keys have a scale; each sum is relative to its largest scale."""
    # A maximum of all keys would include later keys: each query has a softmax of the scales in its
    # chunk up to its own, and of the largest scale before.
    heads, count, _, width = value.shape[1:]
    later = _later(scale)
    if count == 1:
        return (own * (scale + later).softmax(dim=-1)) @ value
    # The maximum is subtracted here and added elsewhere, so it needs no gradient.
    most = scale.detach().amax(dim=-1, keepdim=True)
    sums = (key * (scale - most).exp()) @ value
    most = most.reshape(-1, heads, 1, count)
    earlier = most + _later(most, itself=True)
    before = earlier.detach().amax(dim=-1, keepdim=True)
    read = (earlier - before).exp() @ sums.reshape(-1, heads, count, key.shape[-2] * width)
    read = read.reshape(-1, heads, count, key.shape[-2], width)
    scales = torch.cat([scale, before[..., None]], dim=-1) + functional.pad(later, (0, 1))
    weights = scales.softmax(dim=-1)
    return (own * weights[..., :-1]) @ value + weights[..., -1:] * (query @ read)


def _later(scale: Tensor, *, itself: bool = False) -> Tensor:
    """Summand of `[…, 1, key]` that leaves out keys after each query, or itself too."""
    steps = scale.shape[-1]
    # Finite, because the first query may have no key.
    return scale.new_full((steps, steps), -1e30).triu(0 if itself else 1)
