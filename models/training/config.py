"""Settings of a training. No torch here: the command line reads its options from this class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from foretell.bundle.manifest import Architecture, Positive
from foretell.models.data.splits import Splits

NamedSplit = Literal["ett-hourly", "ett-minute"]
Precision = Literal["float32", "bfloat16", "float16"]
Fractions = tuple[float, float, float]

HYPER_PARAMETERS = (
    "d_model",
    "heads",
    "d_ff",
    "encoder_layers",
    "dropout",
    "activation",
    "label",
    "decoder_layers",
    "embedding",
    "factor",
    "moving_average",
    "patch",
    "stride",
    "norm",
)


class TrainingConfig(BaseModel):
    """Everything besides the data that a trained model depends on.

    A hyper-parameter that is None is left to the architecture.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arch: Architecture = Field(description="Family of the model.")
    context: Positive = Field(description="Steps of history the model reads.")
    horizon: Positive = Field(description="Steps it forecasts.")

    d_model: Positive = Field(default=32, description="Features of a token.")
    heads: Positive = Field(default=4, description="Attention heads; they divide d_model.")
    d_ff: Positive = Field(default=64, description="Width of the feed-forward layers.")
    encoder_layers: Positive = Field(default=2, description="Encoder layers.")
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="Probability of dropout; slow on a CPU."
    )
    activation: Literal["gelu", "relu"] | None = Field(
        default=None, description="Of the feed-forward layers."
    )
    label: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Steps of history the decoder starts with; half the context if not given "
        "(autoformer, transformer).",
    )
    decoder_layers: Positive | None = Field(
        default=None, description="Decoder layers (autoformer, transformer)."
    )
    embedding: Literal["timeF", "fixed", "learned"] | None = Field(
        default=None, description="Of calendar features (autoformer, transformer)."
    )
    factor: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Lags kept are int(factor * ln length) (autoformer)."
    )
    moving_average: Positive | None = Field(
        default=None, description="Steps of the moving average, odd (autoformer)."
    )
    patch: Positive | None = Field(default=None, description="Steps of a patch (patchtst).")
    stride: Positive | None = Field(
        default=None, description="Steps from one patch to the next (patchtst)."
    )
    norm: Literal["layer", "batch"] | None = Field(
        default=None, description="Norm inside the encoder layers (patchtst)."
    )

    splits: NamedSplit | Fractions = Field(
        default=(0.7, 0.1, 0.2),
        description="Train, validation and test: three fractions, or a published split.",
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

    def hyper_parameters(self) -> dict[str, object]:
        """Those that were set, by the names the architectures have for them."""
        values = {name: getattr(self, name) for name in HYPER_PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}

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
