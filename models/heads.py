"""Forecasts of each step: values, parameters of distributions, or quantiles.

Raw outputs become parameters by the rules of GluonTS (Alexandrov et al., JMLR 2020), which Hugging
Face's transformers share: positive parameters are `squareplus` of outputs. Other heads follow the
rules of NeuralForecast's `DistributionLoss` (Olivares et al., 2022): `softplus` of outputs, and
more.
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


# NeuralForecast adds this to positive parameters; here it is their minimum.
_TINY = 1e-8
MEDIAN = 0.5


class Head(ABC):
    """The distribution of each step; parameters are the last axis, in the order of `described`."""

    # Whether its parameters are values, on which norms of windows are undone.
    is_of_values: ClassVar[bool] = False
    # Name of its loss.
    loss_name: ClassVar[str] = "likelihood"

    @property
    @abstractmethod
    def described(self) -> Distribution:
        """Its description in a manifest."""

    @property
    def is_of_counts(self) -> bool:
        """Whether its values are counts, from which no mean can be subtracted."""
        return self.described.is_of_counts

    @property
    def adds_centre(self) -> bool:
        """Whether the centre subtracted from windows is added again; counts may only be scaled."""
        return True

    @property
    def size(self) -> int:
        """Number of outputs of a network for each step and channel."""
        return len(self.described.parameters)

    def values(self, outputs: Tensor) -> Tensor:
        """Values from the outputs of a network, for a head of values.

        Args:
            outputs: `[batch, size * horizon, channels]`.

        Returns:
            `[batch, parameters * horizon, channels]`.
        """
        return outputs

    @abstractmethod
    def constrain(self, raw: Tensor) -> Tensor:
        """Parameters from the outputs of a network, both `[…, parameters]`."""

    def anchored(self, raw: Tensor, anchor: InstanceStatistics | None) -> Tensor:
        """Parameters from the outputs of a network for normalised windows.

        Args:
            raw: `[batch, horizon, channels, parameters]`.
            anchor: Shift and scale of the distributions, or None for neither.
        """
        parameters = self.constrain(raw)
        return parameters if anchor is None else self.scaled(parameters, *anchor)

    @abstractmethod
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        """Parameters of the values times `spread` plus `centre`, each `[…]`."""

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """The forecast `[…]` from `[…, parameters]`: the mean, or the median of quantiles."""

    @abstractmethod
    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """The training loss of `[…, parameters]` and `target` `[…]`."""


class Family(NamedTuple):
    """Functions of the parameters `[…, parameters]` of a family of distributions.

    Attributes:
        torch: Makes the distributions of torch.
        mean: Computes their means.
        scaled: Computes the parameters of the values times a spread plus a centre.
    """

    torch: Callable[[Tensor], distributions.Distribution]
    mean: Callable[[Tensor], Tensor]
    scaled: Callable[[Tensor, Tensor, Tensor], Tensor]


def _moved(parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Shift and scale location and scale, which are the last two."""
    *others, loc, scale = _each(parameters)
    return torch.stack([*others, loc * spread + centre, scale * spread], dim=-1)


def _more_likely(parameters: Tensor, _: Tensor, spread: Tensor) -> Tensor:
    """Scale the mean only: no centre is added to counts."""
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
        anchored: Parameters for normalised windows, if these need more than scaling: for counts,
            the centre that was subtracted is added again.
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
        levels: Ascending levels.

    Raises:
        ValueError: the levels are not valid; the message begins with `levels`.
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
    """Quantiles of fixed levels that an implicit quantile network makes from one value.

    The network multiplies by an embedding of the level (Dabney et al., ICML 2018, arXiv:1806.06923;
    Gouttes et al., 2021, arXiv:2107.03743). The embedding of a fixed level is a number, its factor.

    Args:
        levels: Ascending levels.

    Raises:
        ValueError: the levels are not valid; the message begins with `levels`.
    """

    def __init__(self, levels: tuple[float, ...]) -> None:
        nn.Module.__init__(self)
        super().__init__(levels)
        self.factors = nn.Parameter(torch.ones(len(levels)))
        self.bias = nn.Parameter(torch.zeros(1))
        # Slope of negative values, as in torch's PReLU.
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
    """`(raw + sqrt(raw² + 4)) / 2`, without the difference that loses digits far below 0."""
    above = raw.relu()
    # The magnitude with a gradient at 0, where that of `abs` is 0.
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
        # The centre of counts is not negative, so the sum loses no digits.
        mean = mean * spread + anchor.centre.clamp(min=0)
    # A minimum and not a sum: an exporter would drop such a small summand.
    mean = mean.clamp(min=_TINY)
    total_count = (spread + 1) / inverse.clamp(min=_TINY)
    return torch.stack([total_count, torch.log(mean / total_count)], dim=-1)


def _rates(raw: Tensor, anchor: InstanceStatistics | None = None) -> Tensor:
    """NeuralForecast's rates: `softplus` of a value in the units of the window."""
    if anchor is not None:
        raw = raw * anchor.spread[..., None] + anchor.centre[..., None]
    return functional.softplus(raw).clamp(min=_TINY)


def _of_parts(*rules: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A rule that makes parameters one by one."""

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
