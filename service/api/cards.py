"""The wire types of models: cards, from which clients build requests, and reports."""

from __future__ import annotations

from pydantic import BaseModel, Field

from foretell.bundle.bounds import Bounds
from foretell.bundle.covariates import CovariateType
from foretell.bundle.results import CalibrationReport, TestResult, Verification
from foretell.service.validation import Digest


class CovariateCard(BaseModel):
    """A covariate that a model reads."""

    name: str
    type: CovariateType
    categories: tuple[str, ...] = Field(description="Names of the categories; else empty.")
    other: bool = Field(description="Whether any other category may be sent.")


class CovariateCards(BaseModel):
    """The covariates that a model reads."""

    future: list[CovariateCard] = Field(description="Known for the history and the horizon.")
    past: list[CovariateCard] = Field(
        description="Known for the history: channels that are read and not forecast, by name or as "
        "columns of `series` (of a category, one column `name=category` for each)."
    )
    static: list[CovariateCard] = Field(description="One value for each series.")


class ModelCard(BaseModel):
    """Description of a model, from which a client builds requests."""

    name: str
    version: str
    digest: Digest
    versions: list[str]
    refused: str | None = Field(
        description="Why the changed bundle of this version was refused; "
        "the tested one still answers. Null if no bundle was refused."
    )
    architecture: str
    channels: tuple[str, ...]
    targets: tuple[str, ...] = Field(
        description="The forecast channels, out of those that it reads."
    )
    covariates: CovariateCards
    bounds: Bounds = Field(description="Limits of channels, which bound forecasts.")
    context: int
    horizon: int
    max_horizon: int
    frequency: str
    needs_timestamps: bool
    reads_gaps: bool = Field(description="Whether it reads gaps: `options.missing` may be `mask`.")
    quantiles: bool
    quantile_levels: tuple[float, float] | None = Field(
        description="The lowest and the highest level of quantiles within `horizon`; "
        "null without quantiles."
    )
    verdict: str | None = Field(
        description="Comparison with repeating the last value and the last season, in the "
        "test split, in both errors; null if not measured."
    )
    attention: list[str]
    example: bool = Field(description="Whether `GET /models/{model}/example` has a window.")
    ledger: bool = Field(
        description="Whether the server has a ledger: `GET /models/{model}/accuracy` answers."
    )
    provider: str


class ModelReport(ModelCard):
    """The answer of `GET /models/{model}`."""

    parameters: int
    test: TestResult | None
    calibration: CalibrationReport | None
    calibration_missing: str | None = Field(
        description="Why it has no quantiles, if its bundle has the reason."
    )
    verification: Verification
