"""A client of foretell's service: frames in, frames out.

>>> from foretell import Client
>>> with Client("localhost:8000") as client:
...     forecast = client.forecast(frame, model="patchtst")
"""

from foretell.client.answers import (
    Answer,
    ForetellWarning,
    Notes,
    Notice,
    PartialForecastError,
    SeriesError,
)
from foretell.client.backtesting import (
    Backtest,
    Baseline,
    ChannelBacktest,
    Interval,
    SeriesBacktest,
    StepErrors,
    StepIntervals,
)
from foretell.client.cards import ModelCard, ModelReport
from foretell.client.clients import Client
from foretell.client.comparing import Compared
from foretell.client.coroutines import AsyncClient
from foretell.client.errors import (
    ConnectionFailedError,
    ForetellError,
    InvalidInputError,
    NotFoundError,
    OverloadedError,
    ServerError,
    TimedOutError,
    UnauthorizedError,
)
from foretell.client.explaining import Explanation, Patch, Stage
from foretell.client.ledger import Counts, Trajectories, Written

__all__ = [
    "Answer",
    "AsyncClient",
    "Backtest",
    "Baseline",
    "ChannelBacktest",
    "Client",
    "Compared",
    "ConnectionFailedError",
    "Counts",
    "Explanation",
    "ForetellError",
    "ForetellWarning",
    "Interval",
    "InvalidInputError",
    "ModelCard",
    "ModelReport",
    "NotFoundError",
    "Notes",
    "Notice",
    "OverloadedError",
    "PartialForecastError",
    "Patch",
    "SeriesBacktest",
    "SeriesError",
    "ServerError",
    "Stage",
    "StepErrors",
    "StepIntervals",
    "TimedOutError",
    "Trajectories",
    "UnauthorizedError",
    "Written",
]
