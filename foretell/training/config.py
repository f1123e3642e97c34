"""Settings of a training, those of its model apart."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from foretell.bundle.attention import Positive
from foretell.bundle.bounds import Bounds
from foretell.data.reading import Names, split_names
from foretell.data.splits import Splits
from foretell.models.forecaster import ARCHITECTURES
from foretell.timeaxis.calendar import Feature
from foretell.training.losses import LossName
from foretell.training.schedules import WITHOUT_WARM_UP, ScheduleName

NamedSplit = Literal["ett-hourly", "ett-minute"]
Precision = Literal["float32", "bfloat16", "float16"]
Fractions = tuple[float, float, float]


class TrainingConfig(BaseModel):
    """Everything besides the data that a trained model depends on.

    Attributes:
        model: Settings of the architecture's config, by their names there; the others are left to
            it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arch: str = Field(description="Family of the model.")
    context: Positive = Field(description="Steps of history the model reads.")
    horizon: Positive = Field(description="Steps it forecasts.")
    model: dict[str, Any] = {}
    target: Names | None = Field(
        default=None,
        description="Channels to forecast, separated by commas: the others are read alone; all if "
        "not given.",
    )

    calendar: Literal["auto", "all", "none"] | tuple[Feature, ...] = Field(
        default="auto",
        description="Features of the date to read, where the architecture reads any: all that the "
        "published code takes, auto for those of them that the training rows cover often enough, "
        "or names such as hour,day_of_week.",
    )
    splits: NamedSplit | Fractions = Field(
        default=(0.7, 0.1, 0.2),
        description="Train, validation and test: three fractions, or a published split.",
    )
    cut_at: datetime | None = Field(
        default=None,
        description="Date from which on all series are tested, such as 2024-03-01: for series of "
        "different periods, of which each is cut by its own rows otherwise. The rows before it are "
        "divided at a date, too, by the first two of --splits.",
    )
    bounds: Bounds = Field(
        default={},
        description="Limits of channels that no forecast goes beyond, such as "
        "irradiance=0:,humidity=0:100.",
    )
    epochs: Positive = Field(
        default=10,
        description="Passes over the training windows, at most; the schedule is that of so many.",
    )
    patience: Positive = Field(
        default=3, description="Epochs without a better validation error before training stops."
    )
    batch_size: Positive = Field(default=32, description="Windows a step.")
    loss: LossName = Field(
        default="huber", description="What is learned from; quantile is the one of `quantile`."
    )
    huber_delta: float = Field(
        default=1.0,
        gt=0,
        description="Error from which on huber is linear, in standard deviations.",
    )
    quantile: float = Field(
        default=0.5, gt=0, lt=1, description="The quantile that loss quantile makes forecasts of."
    )
    optimizer: Literal["adam", "adamw"] = Field(
        default="adam", description="adamw takes the decay of the weights out of the gradient."
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Its peak; if not given, one that suits the width of the model.",
    )
    schedule: ScheduleName = Field(
        default="cosine",
        description="Of the learning rate. Halving (type1), type2 and type3 are those of the "
        "published code by epochs, one-cycle is its TST.",
    )
    warm_up: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the steps in which the rate rises: of cosine and one-cycle.",
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Of all weights.")
    grad_clip: float | None = Field(
        default=None,
        validation_alias=AliasChoices("grad_clip", "clip"),
        gt=0,
        description="Largest norm of the gradient.",
    )
    ema_decay: float | None = Field(
        default=None,
        validation_alias=AliasChoices("ema_decay", "average"),
        gt=0,
        lt=1,
        description="Decay by step of a running mean of the weights; it is what is judged and "
        "kept then.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        default=0, description="Of weights, dropout and the order of the windows."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where to train; auto takes a GPU if there is one."
    )
    precision: Literal["auto", Precision] = Field(
        default="auto",
        description="Of the arithmetic; float16 needs a GPU, auto takes bfloat16 on one that has "
        "it. On a CPU with AMX bfloat16 trains wide models about twice as fast.",
    )

    @field_validator("arch")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name not in ARCHITECTURES:
            raise ValueError(f"expected one of {', '.join(ARCHITECTURES)}")
        return name

    @field_validator("huber_delta", "quantile")
    @classmethod
    def _check_loss(cls, value: float, info: ValidationInfo) -> float:
        owner = "huber" if info.field_name == "huber_delta" else "quantile"
        usual = cls.model_fields[str(info.field_name)].default
        if value != usual and info.data.get("loss") != owner:
            raise ValueError(f"only loss {owner} reads it")
        return value

    @field_validator("warm_up")
    @classmethod
    def _check_schedule(cls, value: float, info: ValidationInfo) -> float:
        schedule = info.data.get("schedule")
        if value != cls.model_fields["warm_up"].default and schedule in WITHOUT_WARM_UP:
            raise ValueError(f"schedule {schedule} has none")
        return value

    @field_validator("calendar", mode="wrap")
    @classmethod
    def _read_calendar(cls, calendar: object, validate: ValidatorFunctionWrapHandler) -> object:
        if isinstance(calendar, str) and calendar not in ("auto", "all", "none"):
            calendar = split_names(calendar)
        try:
            return validate(calendar)
        except ValidationError:
            raise ValueError(
                f"expected auto, all, none or some of {', '.join(get_args(Feature))}"
            ) from None

    @field_validator("splits", mode="wrap")
    @classmethod
    def _read_splits(cls, splits: object, validate: ValidatorFunctionWrapHandler) -> object:
        if isinstance(splits, str) and "," in splits:
            splits = splits.split(",")
        try:
            return validate(splits)
        except ValidationError:
            raise ValueError(
                "expected ett-hourly, ett-minute or three fractions such as 0.7,0.1,0.2"
            ) from None

    @field_validator("cut_at", mode="before")
    @classmethod
    def _read_date(cls, given: object, info: ValidationInfo) -> object:
        if given is None:
            return None
        if isinstance(info.data.get("splits"), str):
            raise ValueError("--splits is a published split; it has to be three fractions")
        if isinstance(given, str):
            shown = given[:60]
            try:
                given = datetime.fromisoformat(given)
            except ValueError:
                raise ValueError(
                    f"expected a date such as 2024-03-01 or 2024-03-01T12:00, got {shown!r}"
                ) from None
        if isinstance(given, date) and not isinstance(given, datetime):
            # As YAML reads one.
            given = datetime.combine(given, time())
        if not isinstance(given, datetime) or given.tzinfo is not None:
            raise ValueError("expected a date by the clock of the data, without an offset")
        return given

    @property
    def cuts(self) -> Splits:
        """Where series are cut into train, validation and test.

        Raises:
            DataError: the fractions are no split.
        """
        match self.splits:
            case "ett-hourly":
                return Splits.ett_hourly()
            case "ett-minute":
                return Splits.ett_minute()
            case fractions:
                found = Splits.by_fraction(*fractions)
                return found.model_copy(update={"cut_at": self.cut_at})
