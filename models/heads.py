"""What a network forecasts of each step: a value, parameters of a distribution, or quantiles.

Raw outputs become parameters by the rules of GluonTS (Alexandrov et al., JMLR 2020), which Hugging
Face's transformers share: what has to be positive is `squareplus` of what the network says. Or by
those of NeuralForecast's `DistributionLoss` (Olivares et al., 2022): `softplus` of it, and more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, distributions, nn
from typing_extensions import override

from foretell.bundle.distribution import Distribution, Parametric, check_levels
from foretell.models.layers.normalization import InstanceStatistics

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


class Head(ABC):
    """What is said of each step; parameters are the last axis, in the order of `described`."""

    # Whether its parameters are values, of which norms of windows are undone as of any.
    is_of_values: ClassVar[bool] = False
    # Whether what is subtracted of windows is added again; a head of counts may scale them alone.
    adds_centre: ClassVar[bool] = True
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
    def size(self) -> int:
        """How many numbers a network says of a step and channel."""
        return len(self.described.parameters)

    def values(self, said: Tensor) -> Tensor:
        """Of a head of values these, of what a network says.

        Args:
            said: `[batch, size * horizon, channels]`.

        Returns:
            `[batch, parameters * horizon, channels]`.
        """
        return said

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


class Family(Head):
    """A family of distributions."""

    family: ClassVar[Parametric]

    @property
    @override
    def described(self) -> Distribution:
        return Distribution.of(self.family)

    @abstractmethod
    def distribution(self, parameters: Tensor) -> distributions.Distribution:
        """Of `[…, parameters]`, as torch has it."""

    @override
    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """The mean negative logarithm of the likelihood."""
        found: Tensor = self.distribution(parameters).log_prob(target)
        return -found.mean()


class Normal(Family):
    """Normal distributions, by mean and standard deviation."""

    family = "normal"

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        loc, scale = raw[..., 0], raw[..., 1]
        return torch.stack([loc, _positive(scale)], dim=-1)

    @override
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        loc, scale = parameters[..., 0], parameters[..., 1]
        return torch.stack([loc * spread + centre, scale * spread], dim=-1)

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    @override
    def distribution(self, parameters: Tensor) -> distributions.Distribution:
        loc, scale = parameters[..., 0], parameters[..., 1]
        return distributions.Normal(loc, scale, validate_args=False)


class StudentT(Family):
    """Student's t of more than two degrees of freedom, by these, location and scale."""

    family = "student-t"

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        df, loc, scale = raw[..., 0], raw[..., 1], raw[..., 2]
        return torch.stack([2 + _squareplus(df), loc, _positive(scale)], dim=-1)

    @override
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        df, loc, scale = parameters[..., 0], parameters[..., 1], parameters[..., 2]
        return torch.stack([df, loc * spread + centre, scale * spread], dim=-1)

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 1]

    @override
    def distribution(self, parameters: Tensor) -> distributions.Distribution:
        df, loc, scale = parameters[..., 0], parameters[..., 1], parameters[..., 2]
        return distributions.StudentT(df, loc, scale, validate_args=False)


class NegativeBinomial(Family):
    """Negative binomials, by `total_count` and the logarithm of the odds of a success."""

    family = "negative-binomial"
    adds_centre = False

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        total_count, logits = raw[..., 0], raw[..., 1]
        return torch.stack([_squareplus(total_count), logits], dim=-1)

    @override
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        """Scale the mean; what is subtracted of the history is no part of counts."""
        total_count, logits = parameters[..., 0], parameters[..., 1]
        return torch.stack([total_count, logits + spread.log()], dim=-1)

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0] * parameters[..., 1].exp()

    @override
    def distribution(self, parameters: Tensor) -> distributions.Distribution:
        total_count, logits = parameters[..., 0], parameters[..., 1]
        return distributions.NegativeBinomial(total_count, logits=logits, validate_args=False)


class Poisson(Family):
    """Poisson's distributions, by their rate."""

    family = "poisson"
    adds_centre = False

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        return _positive(raw)

    @override
    def scaled(self, parameters: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
        """Scale the rate alone, as of all counts."""
        return parameters * spread[..., None]

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    @override
    def distribution(self, parameters: Tensor) -> distributions.Distribution:
        return distributions.Poisson(parameters[..., 0], validate_args=False)


class NeuralForecastNormal(Normal):
    """NeuralForecast's, whose deviation is at least 0.2 of the window's."""

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        loc, scale = raw[..., 0], raw[..., 1]
        return torch.stack([loc, _softplus(scale) + 0.2], dim=-1)


class NeuralForecastStudentT(StudentT):
    """NeuralForecast's, of at least three degrees of freedom."""

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        df, loc, scale = raw[..., 0], raw[..., 1], raw[..., 2]
        df, scale = 3 + _softplus(df), _softplus(scale) + 0.1
        return torch.stack([df, loc, scale], dim=-1)


class NeuralForecastNegativeBinomial(NegativeBinomial):
    """NeuralForecast's, of which a network says the mean and the inverse of `total_count`.

    Both follow the window: the mean is shifted too, and larger windows have larger counts.
    """

    adds_centre = True

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        return self.anchored(raw, None)

    @override
    def anchored(self, raw: Tensor, anchor: InstanceStatistics | None) -> Tensor:
        positive = _softplus(raw)
        said, inverse = positive[..., 0], positive[..., 1]
        mean, spread = (said, 1.0) if anchor is None else (said * anchor.spread, anchor.spread)
        if anchor is not None:
            # The centre of counts is not below 0, and nothing is lost in their sum.
            mean = mean + anchor.centre.clamp(min=0)
        # Sums with a number as small as this would be left out of graphs.
        mean = mean.clamp(min=_TINY)
        total_count = (spread + 1) / inverse.clamp(min=_TINY)
        return torch.stack([total_count, torch.log(mean / total_count)], dim=-1)


class NeuralForecastPoisson(Poisson):
    """NeuralForecast's, whose rate is `softplus` of a value in the units of the window."""

    adds_centre = True

    @override
    def constrain(self, raw: Tensor) -> Tensor:
        return _softplus(raw).clamp(min=_TINY)

    @override
    def anchored(self, raw: Tensor, anchor: InstanceStatistics | None) -> Tensor:
        if anchor is not None:
            raw = raw * anchor.spread[..., None] + anchor.centre[..., None]
        return self.constrain(raw)


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
    def values(self, said: Tensor) -> Tensor:
        found = said[:, None] * self.factors[:, None, None] + self.bias
        found = found.relu() - self.slope * (-found).relu()
        return found.flatten(1, 2)


HEADS: Mapping[str, Family] = {
    "normal": Normal(),
    "student-t": StudentT(),
    "negative-binomial": NegativeBinomial(),
    "poisson": Poisson(),
    "neuralforecast-normal": NeuralForecastNormal(),
    "neuralforecast-student-t": NeuralForecastStudentT(),
    "neuralforecast-negative-binomial": NeuralForecastNegativeBinomial(),
    "neuralforecast-poisson": NeuralForecastPoisson(),
}
OF_LEVELS: Mapping[str, type[Quantiles]] = {
    "quantiles": Quantiles,
    "implicit-quantiles": ImplicitQuantiles,
}
# What NeuralForecast adds to what has to be more than 0, which is at least as much here.
_TINY = 1e-8
MEDIAN = 0.5


def _softplus(raw: Tensor) -> Tensor:
    """As torch has it, of operators that have a kernel on CUDA.

    A small number that 1 is added to loses its digits; the quotient has them from the same sum
    (Kahan's `log1p`).
    """
    above = raw.relu()
    # Of the same slope at 0 as the other: `abs` has none.
    small = torch.exp(raw - 2 * above)
    total = 1 + small.clamp(min=torch.finfo(raw.dtype).eps)
    return above + small * (torch.log(total) / (total - 1))


def _squareplus(raw: Tensor) -> Tensor:
    """`(raw + sqrt(raw² + 4)) / 2`, without the difference that leaves no digits far below 0."""
    above = raw.relu()
    # The magnitude, of the same slope at 0: `abs` has none.
    magnitude = 2 * above - raw
    return above + 2 / (magnitude + torch.sqrt(raw * raw + 4))


def _positive(raw: Tensor) -> Tensor:
    return _squareplus(raw).clamp(min=torch.finfo(torch.float32).eps)
