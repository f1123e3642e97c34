"""Settings of a training; `model` has those of the architecture."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
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
from foretell.models.config import ARCHITECTURES
from foretell.timeaxis.calendar import Feature
from foretell.training.losses import LossName
from foretell.training.schedules import WITHOUT_WARM_UP, ScheduleName

NamedSplit = Literal["ett-hourly", "ett-minute"]
Precision = Literal["float32", "bfloat16", "float16"]
Fractions = tuple[float, float, float]


class TrainingConfig(BaseModel):
    """Everything besides the data that a trained model depends on.

    Attributes:
        model: Settings of the architecture's configuration, by name; others have their defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arch: str = Field(description="Architecture of the model.")
    context: Positive = Field(description="Number of history steps that the model reads.")
    horizon: Positive = Field(description="Number of steps that the model forecasts.")
    model: dict[str, Any] = {}
    target: Names | None = Field(
        default=None,
        description="Channels to forecast, separated by commas; others are only read. All by "
        "default.",
    )

    unseen_categories: Literal["refuse", "other"] = Field(
        default="refuse",
        description="Categories of covariates that training rows lack: refuse them, or read all of "
        "them as one.",
    )
    network: Path | None = Field(
        default=None,
        description="Checkpoint of a trained model that is kept as it is: only a decoder of "
        "covariates learns.",
    )
    target_copies: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Covariates that give a target before it is known: refuse them, or allow "
        "them because their values are really known that early.",
    )
    calendar: Literal["auto", "all", "none"] | tuple[Feature, ...] = Field(
        default="auto",
        description="Calendar features to read, if the architecture reads any: all of the "
        "published code, auto for those that the training rows cover often enough, none, or names "
        "such as hour,day_of_week.",
    )
    splits: NamedSplit | Fractions = Field(
        default=(0.7, 0.1, 0.2),
        description="Train, validation and test: three fractions, or a published split.",
    )
    cut_at: datetime | None = Field(
        default=None,
        description="Start of the test rows of all series, such as 2024-03-01, for series of "
        "different periods. Without it, each series is cut by its own rows. The rows before the "
        "date are cut at one date too, by the first two fractions of --splits.",
    )
    bounds: Bounds = Field(
        default={},
        description="Limits of forecasts, by channel, such as irradiance=0:,humidity=0:100.",
    )
    epochs: Positive = Field(
        default=10,
        description="Most passes over the training windows; the schedule spans all of them.",
    )
    patience: Positive = Field(
        default=3, description="Epochs without a better validation error before training stops."
    )
    batch_size: Positive = Field(default=32, description="Number of windows per step.")
    loss: LossName = Field(
        default="huber", description="Training loss; `quantile` is that of the setting quantile."
    )
    huber_delta: float = Field(
        default=1.0,
        gt=0,
        description="Error above which huber is linear, in standard deviations.",
    )
    quantile: float = Field(
        default=0.5, gt=0, lt=1, description="Quantile that a model with loss quantile forecasts."
    )
    optimizer: Literal["adam", "adamw"] = Field(
        default="adam", description="Optimizer; adamw decouples weight decay from the gradient."
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Peak of the learning rate; by default one for the width of the model.",
    )
    schedule: ScheduleName = Field(
        default="cosine",
        description="Schedule of the learning rate. halving (type1), type2 and type3 are those of "
        "the published code, by epochs; one-cycle is its TST.",
    )
    warm_up: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the steps in which the rate rises, for cosine and one-cycle.",
    )
    weight_decay: float = Field(default=0.0, ge=0, description="Weight decay of all weights.")
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
        description="Decay per step of a moving average of the weights, which is then validated "
        "and kept.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        default=0, description="Seed of weights, dropout and the order of the windows."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Device to train on; auto takes a GPU if there is one."
    )
    precision: Literal["auto", Precision] = Field(
        default="auto",
        description="Precision of the arithmetic. float16 needs a GPU; auto takes bfloat16 on a "
        "GPU that has it. On a CPU with AMX, bfloat16 trains wide models about twice as fast.",
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
            raise ValueError(f"schedule {schedule} has no warm-up; leave it out")
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
            # YAML reads a plain date as `date`.
            given = datetime.combine(given, time())
        if not isinstance(given, datetime) or given.tzinfo is not None:
            raise ValueError("expected a date in the clock of the data, without an offset")
        return given

    @property
    def cuts(self) -> Splits:
        """The splits into train, validation and test.

        Raises:
            DataError: the fractions are not positive or do not add up to 1.
        """
        match self.splits:
            case "ett-hourly":
                return Splits.ett_hourly()
            case "ett-minute":
                return Splits.ett_minute()
            case fractions:
                found = Splits.by_fraction(*fractions)
                return found.model_copy(update={"cut_at": self.cut_at})
