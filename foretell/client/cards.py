"""What the server says of its models.

Fields that a later server adds are kept (`card.model_extra`); those that an earlier one lacks have
their defaults.
"""

from __future__ import annotations

from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from foretell.client.errors import InvalidInputError
from foretell.client.exchange import Ask, Steps, call, read_json


class _Tolerant(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ChannelBounds(_Tolerant):
    """Limits that no forecast of a channel goes beyond."""

    low: float | None = None
    high: float | None = None


class ModelCard(_Tolerant):
    """What a caller needs to know of a model.

    Attributes:
        name: As requests name it.
        version: That answers where a request names none.
        versions: All that are served.
        architecture: For the reader.
        channels: It reads: columns of a frame.
        targets: It forecasts, of these.
        bounds: By channel.
        context: Rows it reads, at least.
        horizon: Steps it forecasts if it is not told how many.
        max_horizon: At most so many, the later ones from its own forecasts.
        frequency: Of the rows, as pandas names it.
        needs_timestamps: Whether it cannot do without times.
        reads_gaps: Whether it reads which values are missing, so that `missing` may be `mask`.
        quantiles: Whether it has any.
        quantile_levels: The lowest and the highest that one within the horizon can have.
        verdict: How it does against repeating the last value and the last season.
        attention: Names of its stages.
        provider: Of onnxruntime, which runs it.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    architecture: str = ""
    channels: tuple[str, ...]
    targets: tuple[str, ...] = ()
    bounds: dict[str, ChannelBounds] = {}
    context: int
    horizon: int
    max_horizon: int = 0
    frequency: str
    needs_timestamps: bool = False
    reads_gaps: bool = False
    quantiles: bool = False
    quantile_levels: tuple[float, float] | None = None
    verdict: str | None = None
    attention: tuple[str, ...] = ()
    provider: str = ""

    @model_validator(mode="before")
    @classmethod
    def _as_before(cls, given: object) -> object:
        if isinstance(given, dict):
            given = {"targets": given.get("channels"), "max_horizon": given.get("horizon"), **given}
        return given


class Errors(_Tolerant):
    """Mean errors in standardised units."""

    mse: float
    mae: float


class TestResult(_Tolerant):
    """Accuracy in the test split, next to forecasts that need no model.

    Attributes:
        windows: Forecasts that were compared.
        model: As it was trained.
        onnx: As it is served.
        last_value: Repeating the last value.
        seasonal_naive: Repeating the last season.
        season: Steps in it.
    """

    __test__ = False

    windows: int
    model: Errors
    onnx: Errors | None = None
    last_value: Errors | None = None
    seasonal_naive: Errors | None = None
    season: int | None = None


class ModelReport(ModelCard):
    """All that the server says of a model; what is not listed here is in `model_extra`.

    Attributes:
        parameters: How many.
        test: Accuracy in the test split.
        calibration_missing: Why it has no quantiles, where it says so.
    """

    parameters: int | None = None
    test: TestResult | None = None
    calibration_missing: str | None = None


_CARDS = TypeAdapter(list[ModelCard])
_REPORT = TypeAdapter(ModelReport)


def models(retry_for: float) -> Steps[list[ModelCard]]:
    """Ask for all of them."""
    response = yield from call(Ask("GET", "models"), retry_for)
    return read_json(response, _CARDS)


def model(name: str, retry_for: float) -> Steps[ModelReport]:
    """Ask for one."""
    response = yield from call(Ask("GET", f"models/{quote(name, safe='@')}"), retry_for)
    return read_json(response, _REPORT)


def chosen(name: str | None, retry_for: float) -> Steps[ModelCard]:
    """Ask for the one that answers where a request names this one, or none."""
    if name is not None:
        return (yield from model(name, retry_for))
    served = yield from models(retry_for)
    if len(served) != 1:
        names = ", ".join(card.name for card in served) or "none"
        raise InvalidInputError(f"choose one of the models that are served: {names}", place="model")
    return served[0]
