"""Imported, exported and served models forecast the same as the library that trained them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foretell.importers.convert import import_checkpoint
from tests.importers.conformance import Reference, assert_near, predicted, request, sent
from tests.importers.conftest import CASES
from tests.service.client import Client

COVARYING = [name for name in CASES if "covariates" in name or "exogenous" in name]
SERVED = [name for name, case in CASES.items() if case.served]
LEVELS = (0.1, 0.3, 0.5, 0.9)


@pytest.mark.parametrize("name", CASES)
def test_import_forecasts_like_the_library(refer: Callable[[str], Reference], name: str) -> None:
    reference = refer(name)
    found = predicted(import_checkpoint(reference.request).model, reference)
    clear = reference.clear
    # The parameter of a share near 1 is rounded.
    rtol = 1e-4 if np.isnan(reference.forecast).any() else 1e-5
    assert_near(found.forecast[clear], reference.forecast[clear], rtol)
    assert (found.distribution is None) == (reference.distribution is None)
    if found.distribution is not None and reference.distribution is not None:
        parameters = reference.parameters(found.distribution)
        assert parameters.shape == reference.distribution.shape
        assert_near(parameters[clear], reference.distribution[clear])


@pytest.mark.parametrize("name", COVARYING)
def test_every_covariate_matters(refer: Callable[[str], Reference], name: str) -> None:
    reference = refer(name)
    model = import_checkpoint(reference.request).model
    forecast = predicted(model, reference).forecast
    for place, codes in reference.covariates.items():
        for number in range(codes.shape[-1]):
            others = codes.clone()
            others[..., number] = codes[..., number].flip(0)
            changed = reference._replace(covariates={**reference.covariates, place: others})
            assert not torch.allclose(predicted(model, changed).forecast, forecast), place


@pytest.mark.parametrize("name", SERVED)
def test_server_forecasts_like_the_import(
    refer: Callable[[str], Reference], served: Callable[[str], Client], name: str
) -> None:
    reference, client = refer(name), served(name)
    model = import_checkpoint(reference.request).model
    found, history = predicted(model, reference), reference.history.numpy()
    options = {} if model.head is None else {"quantiles": LEVELS}
    contents = ask(client, history, sent(model.config.covariates, reference), options)
    masked = [sum(one.get("masked", {}).values()) for one in contents]
    assert masked == np.isnan(history).sum(axis=(1, 2)).tolist()
    # The server marks choices of lags that rounding decides.
    clear = np.array([not one.get("ill_conditioned", False) for one in contents])
    assert clear.mean() >= 0.75
    means = np.array([one["mean_forecast"] for one in contents]).reshape(found.forecast.shape)
    assert_near(means[clear], found.forecast[clear])
    if model.head is None or found.distribution is None:
        return
    for level in LEVELS:
        quantiles = np.array([one["quantiles"][f"{level:g}"] for one in contents])
        known = model.head.described.quantile(found.distribution.numpy(), level)[clear]
        quantiles = quantiles.reshape(found.forecast.shape)[clear]
        if not model.head.is_of_counts:
            assert_near(quantiles, known)
        else:
            # Rounding of the parameters may change a count by 1.
            assert (np.abs(quantiles - known) <= 1e-5 * known + 1).all()
            assert (quantiles == known).mean() > 0.95


def ask(
    client: Client,
    history: NDArray[np.floating[Any]],
    covariates: list[dict[str, Any]],
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    """Contents of the answers for all windows; missing values are masked."""
    contents: list[dict[str, Any]] = []
    lacks = np.isnan(history).any(axis=(1, 2))
    assert (np.diff(lacks.astype(int)) >= 0).all()
    for part, missing in ((~lacks, {}), (lacks, {"missing": "mask"})):
        if part.any():
            fields = [covariates[place] for place in np.flatnonzero(part)]
            answer = client.forecast(request(history[part], fields, **options, **missing))
            assert answer.status_code == 200, answer.text
            contents += [one["content"][0] for one in answer.json()["outputs"]]
    return contents
