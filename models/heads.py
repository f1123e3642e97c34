"""What a network forecasts of each step: a value, parameters of a distribution, or quantiles.

Raw outputs become parameters by the rules of GluonTS (Alexandrov et al., JMLR 2020), which Hugging
Face's transformers share: what has to be positive is `squareplus` of what the network says. Or by
those of NeuralForecast's `DistributionLoss` (Olivares et al., 2022): `softplus` of it, and more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, distributions, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.distribution import Distribution, Parametric, check_levels
from foretell.models.layers.scales import InstanceStatistics

HeadName = Literal[
    "normal",
    "student-t",
    "negative-binomial",
    "poisson",
    "neuralforecast-normal",
    "neuralforecast-student-t",
    "neuralforecast-negative-binomial",
    "neuralforecast-poisson",
    "quantiles",
    "implicit-quantiles",
]


# What NeuralForecast adds to what has to be more than 0, which is at least as much here.
_TINY = 1e-8
MEDIAN = 0.5


class Head(ABC):
    """The distribution of each step; parameters are the last axis, in the order of `described`."""

    # Whether its parameters are values, of which norms of windows are undone as of any.
    is_of_values: ClassVar[bool] = False
    # What it learns by.
    loss_name: ClassVar[str] = "likelihood"

    @property
    @abstractmethod
    def described(self) -> Distribution:
        """What a manifest says of it."""

    @property
    def is_of_counts(self) -> bool:
        """Whether its values are counts, of which no mean can be subtracted."""
        return self.described.is_of_counts

    @property
    def adds_centre(self) -> bool:
        """Whether what is subtracted of windows is added again; counts may be scaled alone."""
        return True

    @property
    def size(self) -> int:
        """How many numbers a network gives of a step and channel."""
        return len(self.described.parameters)

    def values(self, outputs: Tensor) -> Tensor:
        """Of a head of values these, from the outputs of a network.

        Args:
            outputs: `[batch, size * horizon, channels]`.

        Returns:
            `[batch, parameters * horizon, channels]`.
        """
        return outputs

    @abstractmethod
    def constrain(self, raw: Tensor) -> Tensor:
        """Parameters of what a network says, both `[…, parameters]`."""

    def anchored(self, raw: Tensor, anchor: InstanceStatistics | None) -> Tensor:
        """Parameters of what a network says of windows that were normalised.

        Args:
            raw: `[batch, horizon, channels, parameters]`.
            anchor: What the distributions are shifted and scaled by, or None for neither.
        """
        parameters = self.constrain(raw)
        return parameters if anchor is None else self.scaled(parameters, *anchor)

    @abstractmethod
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        """Those of the values times `spread` plus `centre`, each `[…]`."""

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """The forecast of `[…, parameters]`, `[…]`: the mean, or of quantiles the median."""

    @abstractmethod
    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """What training makes least, of `[…, parameters]` and `target` `[…]`."""


class Family(NamedTuple):
    """How parameters of a family of distributions are read, each `[…, parameters]`.

    Attributes:
        torch: The distributions of torch.
        mean: Their means.
        scaled: The parameters of the values times a spread plus a centre.
    """

    torch: Callable[[Tensor], distributions.Distribution]
    mean: Callable[[Tensor], Tensor]
    scaled: Callable[[Tensor, Tensor, Tensor], Tensor]


def _moved(parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Location and scale, which are the last two."""
    *others, loc, scale = _each(parameters)
    return torch.stack([*others, loc * spread + centre, scale * spread], dim=-1)


def _more_likely(parameters: Tensor, _: Tensor, spread: Tensor) -> Tensor:
    """The mean alone: what is subtracted of the history is no part of counts."""
    total_count, logits = _each(parameters)
    return torch.stack([total_count, logits + spread.log()], dim=-1)


def _each(parameters: Tensor) -> list[Tensor]:
    return [parameters[..., place] for place in range(parameters.shape[-1])]


FAMILIES: Mapping[Parametric, Family] = {
    "normal": Family(
        lambda given: distributions.Normal(given[..., 0], given[..., 1], validate_args=False),
        lambda given: given[..., 0],
        _moved,
    ),
    "student-t": Family(
        lambda given: distributions.StudentT(
            given[..., 0], given[..., 1], given[..., 2], validate_args=False
        ),
        lambda given: given[..., 1],
        _moved,
    ),
    # By `total_count` and the logarithm of the odds of a success.
    "negative-binomial": Family(
        lambda given: distributions.NegativeBinomial(
            given[..., 0], logits=given[..., 1], validate_args=False
        ),
        lambda given: given[..., 0] * given[..., 1].exp(),
        _more_likely,
    ),
    "poisson": Family(
        lambda given: distributions.Poisson(given[..., 0], validate_args=False),
        lambda given: given[..., 0],
        lambda given, _, spread: given * spread[..., None],
    ),
}


class FamilyHead(Head):
    """Parameters of a family of distributions.

    Args:
        family: The family.
        constrain: Parameters from the outputs of a network, both `[…, parameters]`.
        anchored: The same of windows that were normalised, where that is more than to scale them:
            of counts, that what is subtracted of windows is added again.
    """

    def __init__(
        self,
        family: Parametric,
        constrain: Callable[[Tensor], Tensor],
        anchored: Callable[[Tensor, InstanceStatistics], Tensor] | None = None,
    ) -> None:
        self.family = family
        self.rules = FAMILIES[family]
        self._constrain, self._anchored = constrain, anchored

    @property
    @override
    def described(self) -> Distribution:
        return Distribution.of(self.family)

    @property
    @override
    def adds_centre(self) -> bool:
        return not self.is_of_counts or self._anchored is not None

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        return self._constrain(raw)

    @override
    def anchored(self, raw: Tensor, anchor: InstanceStatistics | None) -> Tensor:
        if anchor is None or self._anchored is None:
            return super().anchored(raw, anchor)
        return self._anchored(raw, anchor)

    @override
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        return self.rules.scaled(parameters, centre, spread)

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return self.rules.mean(parameters)

    @override
    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """The mean negative logarithm of the likelihood."""
        found: Tensor = self.rules.torch(parameters).log_prob(target)
        return -found.mean()


class Quantiles(Head):
    """Quantiles of some levels (Koenker and Bassett, 1978), which training may leave unordered.

    Args:
        levels: Ascending.

    Raises:
        ValueError: they are not; the message begins with `levels`.
    """

    is_of_values = True
    loss_name = "quantiles"

    def __init__(self, levels: tuple[float, ...]) -> None:
        check_levels(levels)
        self.levels = levels

    @property
    @override
    def described(self) -> Distribution:
        return Distribution.of_quantiles(self.levels)

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        return raw

    @override
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        return parameters * spread[..., None] + centre[..., None]

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., self.levels.index(MEDIAN)]

    @override
    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """The mean of the quantile losses of all levels."""
        error = target[..., None] - parameters
        levels = torch.tensor(self.levels, dtype=error.dtype, device=error.device)
        return torch.maximum(levels * error, (levels - 1) * error).mean()


class ImplicitQuantiles(Quantiles, nn.Module):
    """Quantiles of fixed levels that an implicit quantile network makes of one value.

    It embeds a level, and multiplies by that (Dabney et al., ICML 2018, arXiv:1806.06923; Gouttes
    et al., 2021, arXiv:2107.03743). Of a level that is fixed the embedding is a number: a factor.

    Args:
        levels: Ascending.

    Raises:
        ValueError: they are not; the message begins with `levels`.
    """

    def __init__(self, levels: tuple[float, ...]) -> None:
        nn.Module.__init__(self)
        super().__init__(levels)
        self.factors = nn.Parameter(torch.ones(len(levels)))
        self.bias = nn.Parameter(torch.zeros(1))
        # Of what is negative, as torch's PReLU has it.
        self.slope = nn.Parameter(torch.full((1,), 0.25))

    @property
    @override
    def size(self) -> int:
        return 1

    @override
    def values(self, outputs: Tensor) -> Tensor:
        found = outputs[:, None] * self.factors[:, None, None] + self.bias
        found = functional.prelu(found, self.slope)
        return found.flatten(1, 2)


def _squareplus(raw: Tensor) -> Tensor:
    """`(raw + sqrt(raw² + 4)) / 2`, without the difference that leaves no digits far below 0."""
    above = raw.relu()
    # The magnitude, of the same slope at 0: `abs` has none.
    magnitude = 2 * above - raw
    return above + 2 / (magnitude + torch.sqrt(raw * raw + 4))


def _positive(raw: Tensor) -> Tensor:
    return _squareplus(raw).clamp(min=torch.finfo(torch.float32).eps)


def _itself(raw: Tensor) -> Tensor:
    return raw


def _counts(raw: Tensor, anchor: InstanceStatistics | None = None) -> Tensor:
    """NeuralForecast's negative binomials, by their mean and the inverse of a count."""
    mean, inverse = _each(functional.softplus(raw))
    spread: Tensor | float = 1.0
    if anchor is not None:
        spread = anchor.spread
        # The centre of counts is not below 0, and nothing is lost in their sum.
        mean = mean * spread + anchor.centre.clamp(min=0)
    # Sums with a number as small as this would be left out of graphs.
    mean = mean.clamp(min=_TINY)
    total_count = (spread + 1) / inverse.clamp(min=_TINY)
    return torch.stack([total_count, torch.log(mean / total_count)], dim=-1)


def _rates(raw: Tensor, anchor: InstanceStatistics | None = None) -> Tensor:
    """NeuralForecast's rates: `softplus` of a value in the units of the window."""
    if anchor is not None:
        raw = raw * anchor.spread[..., None] + anchor.centre[..., None]
    return functional.softplus(raw).clamp(min=_TINY)


def _of_parts(*rules: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Parameters that are made one by one."""

    def constrain(raw: Tensor) -> Tensor:
        parts = (rule(part) for rule, part in zip(rules, _each(raw), strict=True))
        return torch.stack([*parts], dim=-1)

    return constrain


HEADS: Mapping[str, FamilyHead] = {
    "normal": FamilyHead("normal", _of_parts(_itself, _positive)),
    "student-t": FamilyHead(
        "student-t", _of_parts(lambda df: 2 + _squareplus(df), _itself, _positive)
    ),
    "negative-binomial": FamilyHead("negative-binomial", _of_parts(_squareplus, _itself)),
    "poisson": FamilyHead("poisson", _positive),
    "neuralforecast-normal": FamilyHead(
        "normal", _of_parts(_itself, lambda scale: functional.softplus(scale) + 0.2)
    ),
    "neuralforecast-student-t": FamilyHead(
        "student-t",
        _of_parts(
            lambda df: 3 + functional.softplus(df),
            _itself,
            lambda scale: functional.softplus(scale) + 0.1,
        ),
    ),
    "neuralforecast-negative-binomial": FamilyHead("negative-binomial", _counts, _counts),
    "neuralforecast-poisson": FamilyHead("poisson", _rates, _rates),
}
OF_LEVELS: Mapping[str, type[Quantiles]] = {
    "quantiles": Quantiles,
    "implicit-quantiles": ImplicitQuantiles,
}
