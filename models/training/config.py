"""Settings of a training, those of its model apart."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from foretell.bundle.attention import Positive
from foretell.bundle.bounds import Bounds
from foretell.models.data.splits import Splits
from foretell.models.forecaster import ARCHITECTURES

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

    splits: NamedSplit | Fractions = Field(
        default=(0.7, 0.1, 0.2),
        description="Train, validation and test: three fractions, or a published split.",
    )
    bounds: Bounds = Field(
        default={},
        description="Limits of channels that no forecast goes beyond, such as "
        "irradiance=0:,humidity=0:100.",
    )
    epochs: Positive = Field(
        default=10,
        description="Passes over the training windows, at most; the learning rate falls to zero "
        "over just these.",
    )
    patience: Positive = Field(
        default=3, description="Epochs without a better validation error before training stops."
    )
    batch_size: Positive = Field(default=32, description="Windows a step.")
    learning_rate: float = Field(default=2e-3, gt=0, lt=1, description="Peak of the learning rate.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        default=0, description="Of weights, dropout and the order of the windows."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where to train; auto takes a GPU if there is one."
    )
    precision: Literal["auto", Precision] = Field(
        default="auto",
        description="Of the arithmetic; less than float32 needs a GPU, auto takes bfloat16 on one "
        "that has it.",
    )

    @field_validator("arch")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name not in ARCHITECTURES:
            raise ValueError(f"expected one of {', '.join(ARCHITECTURES)}")
        return name

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

    def split(self, rows: int) -> Splits:
        """Split a table of so many rows.

        Raises:
            DataError: the fractions are no split, or a split holds no window.
        """
        match self.splits:
            case "ett-hourly":
                splits = Splits.ett_hourly(self.context)
            case "ett-minute":
                splits = Splits.ett_minute(self.context)
            case fractions:
                splits = Splits.by_fraction(rows, self.context, *fractions)
        splits.check(rows, self.context, self.horizon)
        return splits
