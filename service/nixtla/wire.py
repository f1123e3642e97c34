"""What the nixtla client sends, as release 0.9 has it; docs/clients/nixtla.md says what is served.

All series of a request are one list of numbers, one after the other, and a list of their lengths.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from foretell.bundle.gaps import Missing
from foretell.service.forecast.pieces import Form
from foretell.service.forecast.requests import MOST_INTEGER, Calibrated, Rows, Texts
from foretell.service.validation import at_most

Positive = Annotated[StrictInt, Field(ge=1, le=MOST_INTEGER)]
# Percent of what follows that an interval is to hold: nearer to 100 its bounds would be none.
Level = Annotated[float, Field(strict=True, ge=0, le=99.999999)]


class Series(BaseModel):
    """The histories, by series and oldest first.

    What a model here does not read may be anything: it is refused as a whole.
    """

    y: Rows
    sizes: Annotated[list[Positive], Field(min_length=1, fail_fast=True)]
    start_datetime: Texts | None = None
    X: Any = None
    X_future: Any = None
    categorical_exog: Any = None


class Parameters(BaseModel):
    """`model_parameters`, by which the client lets through what it does not know itself."""

    model_config = ConfigDict(extra="forbid")

    missing: Missing = "error"
    calibration: Calibrated = "stored"


class Request(BaseModel):
    """What all requests have. Fields that nobody reads are kept, to be warned of."""

    model_config = ConfigDict(extra="allow")

    series: Series
    freq: str
    model: str = "timegpt"
    model_parameters: Parameters = Parameters()
    finetune_steps: StrictInt = 0
    finetuned_model_id: str | None = None
    multivariate: bool = False
    # Of columns beside the target, and of what is trained: nothing of it is done here.
    clean_ex_first: Any = None
    feature_contributions: Any = None
    feature_contributions_type: Any = None
    finetune_depth: Any = None
    finetune_loss: Any = None
    hist_exog: Any = None
    refit: Any = None


class ForecastRequest(Request):
    """What `v2/forecast` is sent."""

    h: Positive
    level: Annotated[list[Level], Field(fail_fast=True, max_length=49), at_most(49)] | None = None


class CrossValidationRequest(ForecastRequest):
    """What `v2/cross_validation` is sent.

    With `full_history` the server is to choose `h` and the windows: those of all rows.
    """

    n_windows: Positive = 1
    step_size: Positive | None = None
    full_history: bool = False


def form_of(kind: type[Request]) -> Form:
    """What is read of a request of this kind."""
    return Form(
        {
            "": kind.model_fields,
            "series": Series.model_fields,
            "model_parameters": Parameters.model_fields,
        },
        texts={"series.sizes", "series.start_datetime"},
        numbers={"series.y"},
    )
