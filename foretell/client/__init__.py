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
from foretell.client.cards import ModelCard, ModelReport
from foretell.client.clients import AsyncClient, Client
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

__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "ConnectionFailedError",
    "ForetellError",
    "ForetellWarning",
    "InvalidInputError",
    "ModelCard",
    "ModelReport",
    "NotFoundError",
    "Notes",
    "Notice",
    "OverloadedError",
    "PartialForecastError",
    "SeriesError",
    "ServerError",
    "TimedOutError",
    "UnauthorizedError",
]
