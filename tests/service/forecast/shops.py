"""Models with covariates, requests for them, and the forecasts that they must give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate, Covariates
from tests.service.client import Client
from tests.support.bundles import Spec, softmax_stage, write_bundle

PRICE = Covariate(name="price", mean=10, std=2)
OPEN = Covariate(name="open", type="boolean")
SKY = Covariate(name="sky", type="category", categories=("clear", "rain", "snow"))
REGION = Covariate(name="region", type="category", categories=("north", "south"), other=True)
SIZE = Covariate(name="size")
VISITS = Covariate(name="visits")
STAFF = Covariate(name="staff", type="category", categories=("few", "many"))
SALE = Covariate(name="sale", type="boolean")
CONTEXT, HORIZON = 8, 4

# It forecasts all of its channels, so that it goes on from its forecasts.
SHOP = Spec(
    name="shop",
    channels=("sales", "returns"),
    covariates=Covariates(future=(PRICE, OPEN, SKY), static=(REGION, SIZE)),
    stages=(softmax_stage(),),
    calibrated=3,
    example=10,
)
# It reads channels that it does not forecast.
KIOSK = Spec(
    name="kiosk",
    channels=("visits", "sales", "staff=few", "staff=many", "sale"),
    targets=("sales",),
    covariates=Covariates(future=(PRICE,), past=(STAFF, SALE)),
    with_calendar=True,
)
# Its only covariate is a channel, and it reads gaps.
STALL = Spec(name="stall", channels=("sales", "visits"), targets=("sales",), observed_steps=2)
CODES: dict[str, dict[Any, float]] = {
    "open": {False: 0, True: 1},
    "sky": {"clear": 0, "rain": 1, "snow": 2},
    "region": {"north": 0, "south": 1, "west": 2},
    "staff": {"few": 0, "many": 1},
    "sale": {False: 0, True: 1},
}
VALUES: dict[str, tuple[Any, ...]] = {
    "price": (9.5, 10.0, 12.0, 8.0, 11.0),
    "open": (True, False, True),
    "sky": ("clear", "rain", "rain", "snow"),
    "staff": ("few", "many", "many"),
    "sale": (False, True),
    "visits": (3.0, 5.0, 4.0, 8.0, 1.0, 2.0, 9.0),
}


@pytest.fixture(scope="module")
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the bundles that the module of the test names in `SERVED`."""
    folder = tmp_path_factory.mktemp("shops")
    for spec in request.module.SERVED:
        write_bundle(folder, spec)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Client]:
    with Client(models) as client:
        yield client


def values(name: str, count: int, shift: int = 0) -> list[Any]:
    """Values of a covariate, in which no step is like its neighbours for long."""
    return [VALUES[name][(step + shift) ** 2 % len(VALUES[name])] for step in range(count)]


def shop(rows: int = CONTEXT, ahead: int = HORIZON, shift: int = 0) -> dict[str, Any]:
    """An input of `SHOP`."""
    numbers = np.random.default_rng(shift).uniform(1, 2, (rows, 2)).round(3)
    return {
        "series": numbers.tolist(),
        "future_covariates": {
            name: values(name, rows + ahead, shift) for name in ("sky", "price", "open")
        },
        "static_covariates": {"size": 2.5 + shift, "region": "south"},
    }


def kiosk(rows: int = CONTEXT, shift: int = 0) -> dict[str, Any]:
    """An input of `KIOSK`, with past covariates by name."""
    numbers = np.random.default_rng(shift).uniform(1, 2, rows).round(3)
    return {
        "series": numbers.tolist(),
        "start_timestamp": "2024-01-01T00:00:00",
        "future_covariates": {"price": values("price", rows + HORIZON, shift)},
        "past_covariates": {
            name: values(name, rows, shift) for name in ("sale", "visits", "staff")
        },
    }


def codes(name: str, given: list[Any]) -> list[float]:
    return [CODES.get(name, {}).get(value, value) for value in given]


def forecast_of_shop(entry: Mapping[str, Any], steps: int = HORIZON) -> NDArray[np.float32]:
    """The forecast `[steps, 2]` of an input of `SHOP` without gaps, pass by pass."""
    future = entry["future_covariates"]
    known = np.array([codes(each.name, future[each.name]) for each in (PRICE, OPEN, SKY)]).T
    static = entry["static_covariates"]
    fixed = [codes(name, [static[name]])[0] for name in ("region", "size")]
    history, first = np.array(entry["series"], np.float32), len(entry["series"]) - CONTEXT
    for start in range(first, first + steps, HORIZON):
        now = start + CONTEXT
        covariates = {
            "history_covariates": known[start:now],
            "future_covariates": known[now : now + HORIZON],
            "static_covariates": np.array(fixed),
        }
        batch = {name: np.float32(part)[None] for name, part in covariates.items()}
        passed = SHOP.forecast(history[None, -CONTEXT:], None, batch)[0]
        history = np.concatenate([history, passed])
    return history[len(entry["series"]) :][:steps]
