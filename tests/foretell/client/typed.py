"""Types of the client, which `make types` checks."""

from __future__ import annotations

from typing import assert_type

import pandas as pd
import polars as pl
import pyarrow as pa

from foretell import AsyncClient, Client
from foretell.client import Answer, Backtest, Explanation, ModelCard, ModelReport


def ask(client: Client, pandas: pd.DataFrame, polars: pl.DataFrame) -> None:
    assert_type(client.forecast(pandas, model="load", quantiles=[0.1]), pd.DataFrame)
    assert_type(client.forecast_with_notes(polars, horizon=3), Answer[pl.DataFrame])
    assert_type(client.backtest(pandas, stride=1), Backtest[pd.DataFrame])
    assert_type(client.explain(pandas, heads="mean"), Explanation)
    assert_type(client.models(), list[ModelCard])
    assert_type(client.model("load"), ModelReport)


async def ask_together(client: AsyncClient, polars: pl.DataFrame) -> None:
    assert_type(await client.forecast(polars, missing="ffill"), pl.DataFrame)
    assert_type((await client.backtest(polars)).frame, pl.DataFrame)


def mistaken(client: Client, frame: pa.Table) -> None:
    client.forecast(frame, horizn=3)  # type: ignore[call-arg]
    client.forecast(frame, missing="mean")  # type: ignore[arg-type]
    client.backtest(frame, stride="1")  # type: ignore[arg-type]
