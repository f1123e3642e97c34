"""Settings that every architecture has, and the registry of architectures."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    model_validator,
)

from foretell.bundle.covariates import Covariates, features_of
from foretell.models.heads import HEADS, MEDIAN, OF_LEVELS, Head, HeadName
from foretell.models.layers.window_norms import (
    WindowNorm,
    WindowNormName,
    anchors_by_revin,
    build_window_norm,
    takes_affine,
)
from foretell.models.registry import Registry
from foretell.timeaxis.calendar import Calendar, Encoding
from foretell.timeaxis.frequency import Frequency

if TYPE_CHECKING:
    from foretell.models.forecaster import Forecaster


def _listed(levels: object) -> object:
    """List of the values that a flag separates by commas."""
    return levels.split(",") if isinstance(levels, str) else levels


NormOfWindows = Annotated[
    WindowNormName | None,
    Field(
        description="Norm of each window: mean or last subtracts that value and divides by the "
        "standard deviation (RevIN), other names are scalers of NeuralForecast. A+B puts B within "
        "A; none leaves windows unchanged. Training uses mean by default.",
    ),
]


class ForecasterConfig(BaseModel):
    """Settings of every architecture, which determine both state_dict and forward.

    Fields of a family have a `description`, which is the help of their flags.

    Attributes:
        architecture: Family; each family's config narrows it.
        channels: Series read together.
        targets: Places of the channels that are forecast; None for all.
        context: Steps of history read.
        horizon: Steps forecast in one pass.
        calendar: Calendar features read, or None.
        window_norm: Norm of each window before the network, which is undone after it
            (`foretell.models.layers.window_norms`).
        affine: Whether RevIN in `window_norm` has trained parameters.
        head: The distributions or quantiles that it forecasts, or None for values.
        levels: Levels of the quantiles.
        covariates: Future, past and static covariates, or None. Past ones are channels.
        covariate_norm: Norm of the future covariates of each window, by those of the context.
        covariate_decoder: Whether a decoder reads the covariates, instead of the network, and adds
            to its forecast.
        covariate_width: Features of that decoder.
        covariate_neighbours: Steps before and after a step whose covariates it reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    architecture: str
    channels: int = Field(ge=1)
    targets: tuple[int, ...] | None = Field(default=None, min_length=1)
    context: int = Field(ge=1)
    horizon: int = Field(ge=1)
    calendar: Calendar | None = None
    window_norm: NormOfWindows = None
    affine: bool = Field(default=False, description="Whether RevIN has trained parameters.")
    head: HeadName | None = Field(
        default=None,
        description="Distributions to forecast, or none for values. Names with neuralforecast use "
        "its rules for parameters. Quantiles need levels.",
    )
    levels: Annotated[tuple[float, ...], BeforeValidator(_listed)] | None = Field(
        default=None,
        description="Levels of a head of quantiles, such as 0.1,0.5,0.9, with the median.",
    )
    covariates: Covariates | None = None
    covariate_norm: WindowNormName | None = Field(
        default=None,
        description="Norm of numbers among the future covariates of each window, by those of the "
        "context; names as of window_norm.",
    )
    covariate_decoder: bool = Field(
        default=False,
        description="Whether a decoder reads the covariates, instead of the network, and adds to "
        "its forecast; needed by architectures that do not read covariates themselves.",
    )
    covariate_width: int = Field(
        default=64, ge=1, description="Features of the decoder of covariates."
    )
    covariate_neighbours: int = Field(
        default=1,
        ge=0,
        description="Steps before and after each step whose covariates that decoder reads.",
    )

    # Whether its networks return `horizon` values of every parameter, one parameter after the
    # other.
    has_heads: ClassVar[bool] = False
    # Whether its networks read future and static covariates themselves.
    reads_covariates: ClassVar[bool] = False
    # Whether a decoder may read them instead.
    takes_decoder: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        places = set(self.targets or ())
        if self.targets and self.targets != tuple(sorted(places & {*range(self.channels)})):
            raise ValueError(f"targets: expected places among {self.channels} channels, in order")
        return self

    @model_validator(mode="after")
    def _check_window_norm(self) -> Self:
        if self.affine and not takes_affine(self.window_norm or ""):
            raise ValueError("affine: needs window_norm mean or last")
        return self

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        if (self.head in OF_LEVELS) != (self.levels is not None):
            raise ValueError("levels: a head of quantiles needs them, no other has any")
        if self.head is not None and not self.has_heads:
            raise ValueError(f"head: {self.architecture} forecasts values alone")
        head = self.build_head()
        if head is None:
            return self
        if not head.is_of_values and self.affine and anchors_by_revin(self.window_norm or ""):
            raise ValueError(
                "affine: with a head, RevIN must be within another norm (identity+mean), because "
                "it may change the sign of scales"
            )
        return self

    @model_validator(mode="after")
    def _check_covariates(self) -> Self:
        known = self.covariates
        if self.covariate_decoder and known is None:
            raise ValueError("covariate_decoder: there are no covariates")
        if self.covariate_decoder and not self.takes_decoder:
            raise ValueError(
                f"covariate_decoder: {self.architecture} reads covariates itself; leave it out"
            )
        if self.covariate_neighbours > self.context:
            raise ValueError(f"covariate_neighbours: expected at most the context {self.context}")
        if known is None or self.covariate_decoder or self.reads_all_covariates:
            return self
        if known.future or known.static:
            raise ValueError(
                f"covariates: {self.architecture} does not read them itself; set covariate_decoder"
            )
        return self

    @property
    def target_channels(self) -> tuple[int, ...]:
        """Places of the channels that are forecast."""
        return self.targets or tuple(range(self.channels))

    @property
    def other_channels(self) -> tuple[int, ...]:
        """Places of the channels that are read and not forecast."""
        return tuple(place for place in range(self.channels) if place not in self.target_channels)

    @property
    def calendar_features(self) -> int:
        """Number of calendar features of each step."""
        return len(self.calendar.features) if self.calendar else 0

    @property
    def reads_all_covariates(self) -> bool:
        """Whether the network needs no decoder for its future and static covariates."""
        return self.reads_covariates

    @property
    def covariate_features(self) -> int:
        """Number of features of covariates that a network reads at each step itself."""
        if self.covariates is None or self.covariate_decoder or not self.reads_covariates:
            return 0
        return features_of((*self.covariates.future, *self.covariates.static))

    @property
    def parameters(self) -> int:
        """Number of outputs of a network for each step and channel."""
        head = self.build_head()
        return 1 if head is None else head.size

    def build_head(self) -> Head | None:
        """The head that reads the network's outputs; None for values as they are."""
        if self.head is None:
            return None
        if self.levels is None:
            return HEADS[self.head]
        head = OF_LEVELS[self.head](self.levels)
        if MEDIAN not in head.levels:
            raise ValueError(
                f"levels: expected the median, {MEDIAN}, among them, which is the forecast; got "
                f"{', '.join(map(str, head.levels))}"
            )
        return head

    @abstractmethod
    def build(self) -> Forecaster:
        """An untrained model."""

    def build_window_norm(self) -> WindowNorm | None:
        """The untrained norm of windows, if any."""
        if self.window_norm is None:
            return None
        return build_window_norm(self.window_norm, self.channels, affine=self.affine)

    def build_covariate_norm(self) -> WindowNorm | None:
        """The norm of the future covariates of windows, if any."""
        if self.covariate_norm is None or self.covariates is None:
            return None
        return build_window_norm(self.covariate_norm, len(self.covariates.future), affine=False)

    @property
    def observed_steps(self) -> int | None:
        """Number of last steps in which each channel must have a value, if a model reads gaps.

        All other values of a history may be missing (NaN). None if the model needs all values.
        """
        return None

    @property
    def learning_rate(self) -> float:
        """Default peak of the learning rate."""
        return 5e-3

    @property
    def token_width(self) -> int:
        """Numbers that a layer computes for each token, to estimate memory."""
        return 0

    @classmethod
    def calendar_for(
        cls,
        frequency: Frequency,  # noqa: ARG003 - of families that read one
        settings: dict[str, object],  # noqa: ARG003
    ) -> Calendar | None:
        """Calendar features that a model of this family reads.

        Args:
            frequency: Frequency of the data.
            settings: Fields of the config that are set.
        """
        return None


def calendar_of(frequency: Frequency, encoding: Encoding) -> Calendar | None:
    """Calendar features of a frequency; None without any, as for yearly data."""
    calendar = Calendar.for_frequency(frequency, encoding)
    return calendar if calendar.features else None


ARCHITECTURES: Registry[ForecasterConfig] = Registry(
    "foretell.models.architectures", "architecture", ForecasterConfig
)

AnyConfig = Annotated[SerializeAsAny[ForecasterConfig], BeforeValidator(ARCHITECTURES.read)]
