"""The manifest: everything that a server needs to know about a model, as `manifest.json`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from foretell.bundle.attention import AttentionStage, Label, Positive
from foretell.bundle.bounds import Bounds
from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.distribution import Distribution
from foretell.bundle.errors import BundleError
from foretell.bundle.layout import CALIBRATION, MANIFEST, check_name, check_version
from foretell.bundle.part import FrequencyAlias, Part, first_problem
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import Missing

Device = Literal["cuda", "cpu"]
Precision = Literal["float32", "float16", "bfloat16"]
CalibrationMethod = Literal["scaled_split_conformal", "scaled_rolling_refits"]


class Scaler(Part):
    """Standardisation of each channel. The graph applies it; this copy is for the reader.

    Attributes:
        mean: Number that is subtracted from each channel.
        std: Number that the difference is divided by.
        level: Mean of each channel in the training rows, if it is known and differs from `mean`.
        deviation: Standard deviation of each channel in the training rows, if `level` is given; 0
            for a constant channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    level: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        known = (each for each in (self.level, self.deviation) if each is not None)
        if any(len(each) != len(self.mean) for each in known):
            raise ValueError("level and deviation: expected one of each channel")
        if (self.level is None) != (self.deviation is None):
            raise ValueError("level and deviation belong together")
        if min(self.deviation or (1.0,)) < 0:
            raise ValueError("deviation: expected no negative numbers")
        return self

    @classmethod
    def identity(cls, channels: int) -> Self:
        """The standardisation that leaves values unchanged."""
        return cls(mean=(0.0,) * channels, std=(1.0,) * channels)

    @property
    def is_identity(self) -> bool:
        """Whether it leaves values unchanged."""
        return not any(self.mean) and set(self.std) == {1.0}

    @property
    def training(self) -> Self:
        """Mean and standard deviation of the training rows; 1 for a constant channel.

        Without `level` and `deviation`, this scaler itself.
        """
        if self.level is None or self.deviation is None:
            return self
        return type(self)(mean=self.level, std=tuple(each or 1.0 for each in self.deviation))

    @property
    def known(self) -> tuple[bool, ...]:
        """Whether `training` has the statistics of each channel; not if it is left unchanged."""
        if self.level is not None:
            return (True,) * len(self.mean)
        return tuple(each != (0.0, 1.0) for each in zip(self.mean, self.std, strict=True))

    @property
    def constant(self) -> tuple[bool, ...]:
        """Whether each channel is known to be constant in the training rows."""
        return tuple(each == 0 for each in self.deviation or self.std)

    def beside(self, other: Self) -> Self:
        """This scaler with `level` and `deviation` from the training rows of another scaler."""
        known = other.training
        if other.deviation is None and (known.mean, known.std) == (self.mean, self.std):
            return self
        return self.model_copy(
            update={"level": known.mean, "deviation": other.deviation or other.std}
        )

    def of(self, columns: Sequence[int] | None) -> Self:
        """The scaler of the channels at these places; all channels if None."""
        if columns is None:
            return self
        every = self.model_dump()
        return self.model_copy(
            update={
                name: tuple(values[column] for column in columns)
                for name, values in every.items()
                if values is not None
            }
        )


class Accuracy(Part):
    """Mean errors over all windows of a split, in standard deviations of the training rows."""

    mse: float
    mae: float


class TestResult(Part):
    """Accuracy on the test split, next to the baselines.

    Attributes:
        windows: Number of test windows.
        model: Accuracy of the model in torch.
        onnx: Accuracy of the exported graph in onnxruntime, on the same windows.
        last_value: Accuracy of repeating the last value of the history.
        seasonal_naive: Accuracy of repeating the last season of the history.
        season: Number of steps in a season.
        overlaps: Whether training rows of one series lie after test rows of another.
    """

    __test__ = False

    windows: Positive
    model: Accuracy
    onnx: Accuracy | None = None
    last_value: Accuracy
    seasonal_naive: Accuracy | None = None
    season: Positive | None = None
    overlaps: bool = False


class Check(Part):
    """One comparison of the exported graph with torch.

    Attributes:
        name: Name of the check.
        windows: Number of windows compared.
        excluded: Number of ill-conditioned windows left out: rounding alone decides what a
            mechanism chooses there, such as the lags that it keeps.
        max_error: Largest error over the windows, by `foretell.bundle.measure`.
        median_error: Median error over the windows.
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


class Verification(Part):
    """The comparisons made at export. A bundle is written only if all of them pass.

    Attributes:
        reference: The program that the graphs were compared with.
        provider: The execution provider that ran the graphs.
        emulates: The half precision that the provider emulated, in float32 with every result
            rounded; None if it ran the graphs unchanged.
        checks: The comparisons.
        deviations: Largest forecast error of each target on natural windows, in standard deviations
            of its training rows; empty in bundles that do not record it.
    """

    reference: str
    provider: str
    emulates: Precision | None = None
    checks: tuple[Check, ...]
    deviations: tuple[float, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


class Coverage(Part):
    """How often actual values of the test split lay in an interval.

    Attributes:
        level: The nominal share, such as 0.8 between the quantiles 0.1 and 0.9.
        first_step: The first step ahead that counts, from 1.
        last_step: The last step ahead that counts.
        windows: Number of test windows.
        coverage: The share of values in the interval, over windows, steps and channels.
        width: Mean width of the interval, in standard deviations of the training rows.
    """

    level: Annotated[float, Field(gt=0, lt=1)]
    first_step: Positive
    last_step: Positive
    windows: Positive
    coverage: Annotated[float, Field(ge=0, le=1)]
    width: Annotated[float, Field(ge=0)]


class CalibrationReport(Part):
    """How the quantiles were calibrated, and how well they did in the test split.

    Attributes:
        method: Order statistics of signed errors, each divided by the standard deviation of its
            window's history. The errors are the model's in the validation split. Where that is too
            short, they are those of refits on earlier rows, in the rows that followed.
        floor: The smallest deviation of a history, in standard deviations of the training rows.
        steps: Number of steps ahead that have quantiles.
        windows: Number of windows behind each pass over the horizon. From the second pass on, the
            model continues its own forecasts.
        disjoint: Number of windows of each pass whose forecasts do not overlap.
        coverage: Coverage for each pass and level; empty without a test split.
    """

    method: CalibrationMethod = "scaled_split_conformal"
    floor: Annotated[float, Field(gt=0)]
    steps: Positive
    windows: Annotated[tuple[Positive, ...], Field(min_length=1)]
    disjoint: tuple[Positive, ...]
    coverage: tuple[Coverage, ...]


class Manifest(Part):
    """A model's contract with the server.

    Attributes:
        format: Version of this format; 2 has no covariates.
        name: Name of the model, in URLs too.
        version: Version of the model, a whole number.
        created_at: Time of the export.
        architecture: Name of the architecture, for the reader.
        config: Configuration of the architecture, from the checkpoint.
        parameters: Number of trained parameters.
        precision: Precision of the large matrix products; everything else is float32.
        devices: Devices that have a kernel for every operator of the graphs.
        rewrites: Class names of modules that were exported in a faster form.
        plain: Class names of other modules with weights, exported unchanged.
        channels: Names of the channels, in the order of the last axis of `history`.
        targets: Names of the forecast channels, in the order of the last axis of `forecast` and of
            `channels`; all channels by default.
        covariates: Covariates that the model reads, or None. Its past covariates are channels.
        context: Number of history steps that the model reads.
        horizon: Number of steps that the model forecasts in one pass.
        frequency: Spacing of the steps, a pandas alias.
        calendar: Calendar features that the model reads, or None.
        observed_steps: Number of steps at the end of `history` in which each channel must have a
            value. Other values may be missing (NaN), and the graphs treat them as not observed.
            None if no value may be missing.
        scaler: Standardisation of the channels.
        bounds: Limits of the forecasts, by channel.
        distribution: Distribution in the graphs' output `distribution`
            `[batch, horizon, targets, parameters]`; None for a model of values.
        attention: Attention stages, whose outputs `explain.onnx` returns besides the forecast.
        margin_bound: The graphs' `margin` below which rounding may decide what a mechanism
            chooses, such as the lags that it keeps; None for models without such a choice.
        test: Accuracy on the test split, if it was measured.
        calibration: Calibration of the quantiles, whose offsets are in a file; None without one.
        calibration_missing: Reason why there is no calibration, for the reader.
        verification: The comparisons with torch.
        probe_tolerance: Largest error when the server replays the probes.
        opset: ONNX opset of both graphs.
        libraries: Versions of the libraries that wrote the bundle.
        files: sha256 of every other file, by name.
    """

    format: Literal[2, 3] = 3
    name: Annotated[str, AfterValidator(check_name)]
    version: Annotated[str, AfterValidator(check_version)]
    created_at: datetime
    architecture: Label
    config: dict[str, Any]
    parameters: Positive
    precision: Precision = "float32"
    devices: Annotated[tuple[Device, ...], Field(min_length=1)] = ("cuda", "cpu")
    rewrites: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    channels: Annotated[tuple[str, ...], Field(min_length=1)]
    targets: tuple[str, ...] = ()
    covariates: Covariates | None = None
    context: Positive
    horizon: Positive
    frequency: FrequencyAlias
    calendar: Calendar | None
    observed_steps: Positive | None = None
    scaler: Scaler
    bounds: Bounds = Field(default={})
    distribution: Distribution | None = None
    attention: tuple[AttentionStage, ...]
    margin_bound: Annotated[float, Field(ge=0)] | None = None
    test: TestResult | None
    calibration: CalibrationReport | None = None
    calibration_missing: str | None = None
    verification: Verification
    probe_tolerance: float
    opset: Positive
    libraries: dict[str, str]
    files: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _all_are_targets(cls, fields: object) -> object:
        if isinstance(fields, dict) and "targets" not in fields and "channels" in fields:
            return fields | {"targets": fields["channels"]}
        return fields

    @field_validator("targets")
    @classmethod
    def _targets(cls, targets: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = tuple(name for name in info.data.get("channels", ()) if name in targets)
        if not known or targets != known:
            raise ValueError("expected channels, in their order")
        return targets

    @field_validator("observed_steps")
    @classmethod
    def _observed_steps(cls, steps: int | None, info: ValidationInfo) -> int | None:
        if steps is not None and steps > (context := info.data.get("context", steps)):
            raise ValueError(f"expected at most the context of {context}")
        return steps

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        channels = len(self.channels)
        if len(set(self.channels)) != channels:
            raise ValueError("channels: names are not unique")
        if len(self.scaler.mean) != channels or len(self.scaler.std) != channels:
            raise ValueError(f"scaler: expected {channels} means and standard deviations")
        if unknown := self.bounds.keys() - set(self.targets):
            raise ValueError(f"bounds: no channel {min(unknown)!r} is forecast")
        self._check_covariates()
        if any("/" in name or "\\" in name for name in self.files):
            raise ValueError("files: a name has a slash")
        stages = [stage.name for stage in self.attention]
        outputs = [name for stage in self.attention for name in stage.output_names]
        if any(len(set(names)) != len(names) for names in (stages, outputs)):
            raise ValueError("attention: names are not unique")
        for index, stage in enumerate(self.attention):
            _check_channels(stage, channels, f"attention.{index}")
        if self.calibration is not None:
            passes = len(self.calibration.windows)
            counts = (self.calibration.steps, len(self.calibration.disjoint))
            if counts != (passes * self.horizon, passes):
                raise ValueError(f"calibration: expected the steps of {passes} passes")
            if CALIBRATION not in self.files:
                raise ValueError(f"calibration: files has no {CALIBRATION}")
        return self

    def _check_covariates(self) -> None:
        covariates = self.covariates
        if covariates is None:
            return
        if self.format == 2:
            raise ValueError("covariates: format 2 has none")
        for each in (*covariates.future, *covariates.static):
            if each.name in self.channels:
                raise ValueError(f"covariates: {each.name!r} is a channel, too")
        for each in covariates.past:
            for name in each.channels:
                if name not in self.channels or name in self.targets:
                    raise ValueError(f"covariates: {name!r} is not a channel that is only read")

    def __copy__(self) -> Self:
        """A copy without cached properties, also for `model_copy`."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @cached_property
    def columns(self) -> list[int] | None:
        """Places of the targets among the channels; None if all channels are targets."""
        if self.targets == self.channels:
            return None
        return [self.channels.index(name) for name in self.targets]

    @cached_property
    def past_covariates(self) -> tuple[Covariate, ...]:
        """Channels that are read and not forecast, as covariates; categories take several."""
        declared = () if self.covariates is None else self.covariates.past
        known = {name for each in declared for name in each.channels} | {*self.targets}
        others = (Covariate(name=name) for name in self.channels if name not in known)
        return (*declared, *others)

    def needed_steps(self, missing: Missing) -> int:
        """The number of steps at the end of a history in which each channel must have a value.

        Args:
            missing: Treatment of missing values.
        """
        return (missing == "mask" and self.observed_steps) or self.context

    @property
    def target_scaler(self) -> Scaler:
        """Standardisation of the targets."""
        return self.scaler.of(self.columns)

    @cached_property
    def training(self) -> Scaler:
        """Mean and standard deviation of the training rows, as `Scaler.training`."""
        return self.scaler.training

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of each channel in the training rows, to compare histories with.

        0 where it is not known, and for channels of booleans and categories, which have no unit.
        """
        without_unit = [each for each in self.past_covariates if each.type != "number"]
        names = {name for each in without_unit for name in each.channels}
        found = zip(self.channels, self.scaler.known, self.training.std, strict=True)
        return tuple(std if known and name not in names else 0.0 for name, known, std in found)

    @cached_property
    def step(self) -> Frequency:
        """The spacing of the steps, with its arithmetic."""
        return Frequency.parse(self.frequency)


def _check_channels(stage: AttentionStage, channels: int, place: str) -> None:
    for name, axis in (("query", stage.query), ("key", stage.key)):
        _check_places(axis.places, channels, f"{place}.{name}")
        expected = channels if axis.places is None else len(axis.places)
        if axis.of == "channels" and axis.length - axis.padding != expected:
            raise ValueError(f"{place}.{name}: expected the {expected} channels besides padding")
    if stage.per_channel:
        _check_places(stage.places, channels, place)
        expected = channels if stage.places is None else len(stage.places)
        for output in stage.outputs:
            if output.name in stage.evidence and output.shape[0] != expected:
                raise ValueError(
                    f"{place}.outputs: expected {expected} channels first in {output.name}"
                )


def _check_places(places: tuple[int, ...] | None, channels: int, place: str) -> None:
    if places and places[-1] >= channels:
        raise ValueError(f"{place}.places: there are {channels} channels, from 0")


def read(folder: Path) -> Manifest:
    """Read a bundle's manifest.

    Raises:
        BundleError: it is missing or breaks the contract; the message names the field.
    """
    path = folder / MANIFEST
    try:
        return parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise BundleError(f"{path}: missing") from None
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from None


def parse(text: bytes, place: str) -> Manifest:
    """Parse a manifest.

    Args:
        text: JSON of the manifest.
        place: Path or name of the source, for messages.

    Raises:
        BundleError: it breaks the contract; the message names the field.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        field, message = first_problem(error)
        if field == "format":
            given = error.errors()[0]["input"]
            raise BundleError(
                f"{place}: format {given} is not read; export the checkpoint again"
            ) from None
        raise BundleError(f"{place}: {field or 'manifest'}: {message}") from None
