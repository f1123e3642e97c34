"""Descriptions of models by the server.

Fields that a later server adds are kept in `card.model_extra`. Fields that an earlier server lacks
have their defaults.
"""

from __future__ import annotations

from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from foretell.client.errors import InvalidInputError
from foretell.client.exchange import Ask, Steps, call, read_json


class _Tolerant(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ChannelBounds(_Tolerant):
    """Bounds that forecasts of a channel are clipped to."""

    low: float | None = None
    high: float | None = None


class Covariate(_Tolerant):
    """A covariate that a model reads.

    Attributes:
        name: Name in requests.
        type: `number`, `boolean` or `category`.
        categories: Names of the categories, if it is a category.
        other: Whether any other category may be sent.
    """

    name: str
    type: str = "number"
    categories: tuple[str, ...] = ()
    other: bool = False

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels of a past covariate: its name, or `name=category` for each category."""
        if self.type == "category":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)


class Covariates(_Tolerant):
    """The covariates that a model reads.

    Attributes:
        future: Covariates that are known for the history and the horizon.
        past: Covariates that are known for the history: channels that are read and not forecast.
        static: Covariates with one value for each series.
    """

    future: tuple[Covariate, ...] = ()
    past: tuple[Covariate, ...] = ()
    static: tuple[Covariate, ...] = ()


class ModelCard(_Tolerant):
    """Description of a model for its users.

    Attributes:
        name: Name of the model in requests.
        version: Version that answers requests without a version.
        versions: All versions that are served.
        digest: Digest of the manifest, `sha256:…`.
        architecture: Architecture of the model.
        channels: Columns that the model reads.
        targets: Channels that the model forecasts.
        covariates: Covariates that the model reads.
        bounds: Bounds by channel.
        context: Rows that the model reads, at least.
        horizon: Steps that the model forecasts by default.
        max_horizon: Largest horizon; later steps are forecast from forecasts.
        frequency: Spacing of the rows, in the notation of pandas.
        needs_timestamps: Whether the model requires times.
        reads_gaps: Whether the model reads a mask of missing values, so that `missing` may be
            `mask`.
        quantiles: Whether the model has quantiles.
        quantile_levels: Lowest and highest level of quantiles within the horizon.
        verdict: Comparison with repeating the last value and the last season.
        attention: Names of the attention stages.
        ledger: Whether the server has a ledger, which scores its forecasts.
        provider: Execution provider of onnxruntime.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    digest: str = ""
    architecture: str = ""
    channels: tuple[str, ...]
    targets: tuple[str, ...] = ()
    covariates: Covariates = Covariates()
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
    ledger: bool = False
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
    """Accuracy on the test split, next to baselines that need no model.

    Attributes:
        windows: Number of forecasts that were compared.
        model: Errors of the trained model.
        onnx: Errors of the served graph.
        last_value: Errors of repeating the last value.
        seasonal_naive: Errors of repeating the last season.
        season: Steps of a season.
    """

    __test__ = False

    windows: int
    model: Errors
    onnx: Errors | None = None
    last_value: Errors | None = None
    seasonal_naive: Errors | None = None
    season: int | None = None


class ModelReport(ModelCard):
    """Full description of a model; other fields of the server are in `model_extra`.

    Attributes:
        parameters: Number of parameters.
        test: Accuracy on the test split.
        calibration_missing: Reason why the model has no quantiles, if known.
    """

    parameters: int | None = None
    test: TestResult | None = None
    calibration_missing: str | None = None


_CARDS = TypeAdapter(list[ModelCard])
_REPORT = TypeAdapter(ModelReport)


def models(retry_for: float) -> Steps[list[ModelCard]]:
    """Request the cards of all models."""
    response = yield from call(Ask("GET", "models"), retry_for)
    return read_json(response, _CARDS)


def model(name: str, retry_for: float) -> Steps[ModelReport]:
    """Request the report of a model."""
    response = yield from call(Ask("GET", f"models/{quote(name, safe='@')}"), retry_for)
    return read_json(response, _REPORT)


def chosen(name: str | None, retry_for: float) -> Steps[ModelCard]:
    """Request the card of a model by name; without a name, of the only model."""
    if name is not None:
        return (yield from model(name, retry_for))
    served = yield from models(retry_for)
    if len(served) != 1:
        names = ", ".join(card.name for card in served) or "none"
        raise InvalidInputError(f"choose one of the served models: {names}", place="model")
    return served[0]
