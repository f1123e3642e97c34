"""The manifest: everything serving needs to know about a model, as `manifest.json`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from foretell.bundle.calendar import Calendar
from foretell.bundle.errors import BundleError
from foretell.bundle.frequency import Frequency
from foretell.bundle.layout import CALIBRATION, MANIFEST, check_name, check_version

Positive = Annotated[int, Field(ge=1)]
Architecture = Literal["autoformer", "patchtst", "transformer"]
Precision = Literal["float32", "float16", "bfloat16"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Axis(_Part):
    """What the positions of an attention axis stand for.

    Position `i` covers the steps `start + i * stride` up to, not including, that plus `width`,
    counted from the first forecast step (0; history is negative). Steps from `end` on, if given,
    are none: the model repeats the one before. The last `padding` positions stand for no step:
    zeros that the model appends.
    """

    length: Positive
    start: int
    stride: Positive = 1
    width: Positive = 1
    end: int | None = None
    padding: Annotated[int, Field(ge=0)] = 0


class AttentionStage(_Part):
    """One attention of a model and what `explain.onnx` returns of it.

    Outputs of a `softmax` stage: `<name>.weights` `[batch, heads, query, key]`, with a channels
    axis after batch where `per_channel`. Of an `autocorrelation` stage: `<name>.lags` and
    `<name>.lag_weights` `[batch, k]` and `<name>.correlation` `[batch, lags]`, the same for all
    heads; its map is the circulant matrix with `lag_weights[i]` where key - query = `lags[i]`
    (modulo the query's length).
    """

    name: str
    kind: Literal["softmax", "autocorrelation"]
    heads: Positive
    query: Axis
    key: Axis
    per_channel: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of this stage's outputs in `explain.onnx`."""
        parts = ("weights",) if self.kind == "softmax" else ("lags", "lag_weights", "correlation")
        return tuple(f"{self.name}.{part}" for part in parts)


class Scaler(_Part):
    """Per-channel standardisation; the graph applies it, this is for the reader."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Accuracy(_Part):
    """Mean errors over all windows of a split, in standardised units."""

    mse: float
    mae: float


class TestResult(_Part):
    """Accuracy on the test split, next to forecasts that need no model.

    Attributes:
        windows: Number of test windows.
        model: The model, run by torch.
        onnx: The exported graph, run by onnxruntime on the same windows.
        last_value: Repeating the last value of the history.
        seasonal_naive: Repeating the last season of the history.
        season: Steps in that season.
    """

    __test__ = False

    windows: Positive
    model: Accuracy
    onnx: Accuracy | None = None
    last_value: Accuracy
    seasonal_naive: Accuracy | None = None
    season: Positive | None = None


class Check(_Part):
    """One comparison of the exported graph with torch.

    Attributes:
        name: What was compared.
        windows: How many windows were compared.
        excluded: How many more were left out as ill-conditioned: rounding alone decides which lags
            an auto-correlation keeps there.
        max_error: Largest error over the windows, as
            `foretell.bundle.comparison.relative_error` has it.
        median_error: Its median over the windows.
        tolerance: The largest error that passes.
    """

    name: str
    windows: Annotated[int, Field(ge=0)]
    excluded: Annotated[int, Field(ge=0)] = 0
    max_error: float
    median_error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether every window is within the tolerance."""
        return self.max_error <= self.tolerance


class Verification(_Part):
    """The comparisons made at export; a bundle is written only when all of them passed.

    Attributes:
        reference: What the graphs were compared with.
        provider: The execution provider that ran them.
        emulates: The half precision it emulated, in float32 with every result rounded; None where
            it ran the graphs as they are.
        checks: What was compared.
    """

    reference: str
    provider: str
    emulates: Precision | None = None
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


class Coverage(_Part):
    """How often an interval held what came, over windows of the test split.

    Attributes:
        level: The share it was to hold, 0.8 for the one from quantile 0.1 to quantile 0.9.
        first_step: The first step ahead that counts, from 1.
        last_step: The last one.
        windows: Number of test windows.
        coverage: The share it held, over windows, steps and channels.
        width: Its mean width, in standardised units.
    """

    level: Annotated[float, Field(gt=0, lt=1)]
    first_step: Positive
    last_step: Positive
    windows: Positive
    coverage: Annotated[float, Field(ge=0, le=1)]
    width: Annotated[float, Field(ge=0)]


class CalibrationReport(_Part):
    """How the quantiles were calibrated, and how well they did in the test split.

    Attributes:
        method: Order statistics of the errors in the validation split, with their sign, each
            divided by the standard deviation of its window's history.
        floor: The least that counts as such a deviation, in standard deviations of the training
            rows.
        steps: Most steps ahead that have quantiles.
        windows: Validation windows behind each pass over the horizon; the second one and those
            after it are rolled forward on the model's own forecasts.
        disjoint: How many of each pass share no step of their forecasts.
        coverage: For each pass and level; empty without a test split.
    """

    method: Literal["scaled_split_conformal"] = "scaled_split_conformal"
    floor: Annotated[float, Field(gt=0)]
    steps: Positive
    windows: Annotated[tuple[Positive, ...], Field(min_length=1)]
    disjoint: tuple[Positive, ...]
    coverage: tuple[Coverage, ...]


class Manifest(_Part):
    """A model's contract with the server.

    Attributes:
        format: Version of this format.
        name: The name it is served under.
        version: Its version, a whole number.
        created_at: When it was exported.
        architecture: Which of the model families it is.
        config: The architecture's configuration, as its checkpoint has it.
        parameters: Number of trained parameters.
        precision: Of the large matrix products; everything else is float32.
        channels: Names of the channels, in the order of the last axis of `history`.
        context: Steps of history the model reads.
        horizon: Steps it forecasts in one pass.
        frequency: Spacing of the steps, a pandas alias.
        calendar: Calendar features it reads, or None.
        scaler: Its standardisation.
        attention: What `explain.onnx` returns besides the forecast.
        margin_bound: The graphs' `margin` below which rounding may decide which lags an
            auto-correlation keeps; None for models without one.
        test: Accuracy on the test split, if it was measured.
        calibration: Of its quantiles, whose offsets are a file of their own; None for a model
            without validation data.
        verification: The comparisons with torch.
        probe_tolerance: Largest error when the server replays the probes.
        opset: ONNX opset of both graphs.
        libraries: Versions of the libraries that wrote the bundle.
        files: sha256 by name of every other file.
    """

    format: Literal[1] = 1
    name: str
    version: str
    created_at: datetime
    architecture: Architecture
    config: dict[str, Any]
    parameters: Positive
    precision: Precision = "float32"
    channels: Annotated[tuple[str, ...], Field(min_length=1)]
    context: Positive
    horizon: Positive
    frequency: str
    calendar: Calendar | None
    scaler: Scaler
    attention: tuple[AttentionStage, ...]
    margin_bound: Annotated[float, Field(ge=0)] | None = None
    test: TestResult | None
    calibration: CalibrationReport | None = None
    verification: Verification
    probe_tolerance: float
    opset: Positive
    libraries: dict[str, str]
    files: dict[str, str]

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return check_name(name)

    @field_validator("version")
    @classmethod
    def _version(cls, version: str) -> str:
        return check_version(version)

    @field_validator("frequency")
    @classmethod
    def _frequency(cls, frequency: str) -> str:
        return str(Frequency.parse(frequency))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        channels = len(self.channels)
        if len(set(self.channels)) != channels:
            raise ValueError("channels: names are not unique")
        if len(self.scaler.mean) != channels or len(self.scaler.std) != channels:
            raise ValueError(f"scaler: expected {channels} means and standard deviations")
        if any("/" in name or "\\" in name for name in self.files):
            raise ValueError("files: a name has a slash")
        if self.calibration is not None:
            passes = len(self.calibration.windows)
            counts = (self.calibration.steps, len(self.calibration.disjoint))
            if counts != (passes * self.horizon, passes):
                raise ValueError(f"calibration: expected the steps of {passes} passes")
            if CALIBRATION not in self.files:
                raise ValueError(f"calibration: files has no {CALIBRATION}")
        return self

    @property
    def step(self) -> Frequency:
        """The spacing of the steps, with its arithmetic."""
        return Frequency.parse(self.frequency)


def read(folder: Path) -> Manifest:
    """Read a bundle's manifest.

    Raises:
        BundleError: there is none, or it does not keep the contract; the message names the field.
    """
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise BundleError(f"{path}: missing") from None
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise BundleError(f"{path}: {place}: {first['msg']}") from None
