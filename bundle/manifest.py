"""The manifest: everything that a server needs to know about a model, as `manifest.json`."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from hashlib import sha256
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
from foretell.bundle.layout import CALIBRATION, MANIFEST, check_file, check_name, check_version
from foretell.bundle.part import FrequencyAlias, Part, first_problem
from foretell.bundle.results import CalibrationReport, Precision, TestResult, Verification
from foretell.bundle.scaler import Scaler
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import Missing

Device = Literal["cuda", "cpu"]
# A sha256. Sums and names of files become paths.
Sum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


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
    files: dict[Annotated[str, AfterValidator(check_file)], Sum]

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
    return read_both(folder)[1]


def read_both(folder: Path) -> tuple[bytes, Manifest]:
    """The content of a bundle's manifest, and the manifest.

    Raises:
        BundleError: as `read`.
    """
    content = read_bytes(folder)
    return content, parse(content, str(folder / MANIFEST))


def read_bytes(folder: Path) -> bytes:
    """The content of a bundle's manifest.

    Raises:
        BundleError: it is missing or cannot be read.
    """
    path = folder / MANIFEST
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{path}: missing") from None
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from None


def digest_of(content: bytes) -> str:
    """The digest of a manifest or a blob, `sha256:` and 64 hexadecimal digits.

    A manifest's digest stands for the bundle, because the manifest has the sha256 of every file.
    """
    return f"sha256:{sha256(content).hexdigest()}"


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
