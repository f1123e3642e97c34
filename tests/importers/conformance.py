"""Forecasts of libraries that trained and saved models, for comparison with imported ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle.covariates import NO_COVARIATES, Covariate, Covariates
from foretell.importers.arguments import OPTIONS
from foretell.importers.registry import FOLDERS
from foretell.importers.saved import Request
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs

START = "2026-01-01"

Floats = NDArray[np.floating[Any]]


class Reference(NamedTuple):
    """A model that a library has trained and saved, and its forecasts of windows.

    Attributes:
        request: Request of the import.
        history: `[windows, context, channels]`; NaN where a value is missing.
        forecast: `[windows, horizon, channels]`; NaN where it is not compared.
        distribution: `[windows, horizon, channels, parameters]`, of a model of distributions.
        calendars: Calendars of history and future, for a model that reads them; from `START` on
            if the model is served.
        clear: Windows in which rounding does not decide a choice.
        parameters: Converts foretell's parameters of a distribution into those of the library.
        covariates: Codes of covariates by the name of their input.
    """

    request: Request
    history: Tensor
    forecast: Floats
    distribution: Floats | None = None
    calendars: tuple[Tensor, ...] = ()
    clear: NDArray[np.bool_] | slice = slice(None)
    parameters: Callable[[Tensor], Tensor] = lambda found: found
    covariates: Mapping[str, Tensor] = {}


class Case(NamedTuple):
    """A model of a library.

    Attributes:
        refer: Trains and saves the model in a folder, and forecasts with the library.
        served: Whether the model is also exported and served, which takes long.
    """

    refer: Callable[[Path], Reference]
    served: bool = False


def words(request: Request) -> list[str]:
    """Arguments of the command for a request."""
    given = {"from": request.source, "alias": request.member, "arch": request.architecture}
    given["frequency"] = request.frequency
    given["future-covariates"] = request.future_covariates
    given["static-covariates"] = request.static_covariates
    given["channels"] = None if request.channels is None else ",".join(request.channels)
    options = {**OPTIONS, **FOLDERS.get(request.source or "", {})}
    known = {name for name, option in options.items() if option.settable}
    flags = [f"--{name}={each}" for name, each in given.items() if each is not None]
    arguments = request.arguments.items()
    flags += [f"--set={name}={each}" for name, each in arguments if name in known]
    return [str(request.file), *flags, *["--no-scaler"] * request.unscaled]


def predicted(model: Forecaster, reference: Reference) -> Explained:
    """Forecasts of an imported model for the same windows."""
    with torch.inference_mode():
        return model.predict(
            Inputs(reference.history, *reference.calendars, **reference.covariates)
        )


def request(
    history: Iterable[Any], covariates: Sequence[Mapping[str, Any]] = (), **options: Any
) -> dict[str, Any]:
    """A request for forecasts of windows, from `START` on; NaN is missing.

    Args:
        history: Windows.
        covariates: Fields with the covariates of each window.
        options: Options of the request.
    """
    inputs = [
        {
            "series": [
                [None if np.isnan(value) else float(value) for value in row] for row in rows
            ],
            "start_timestamp": f"{START}T00:00:00",
        }
        for rows in history
    ]
    for entry, fields in zip(inputs, covariates, strict=False):
        entry.update(fields)
    return {"inputs": inputs, "options": options}


def sent(covariates: Covariates | None, reference: Reference) -> list[dict[str, Any]]:
    """Fields of requests with the covariates of each window, by name."""
    known = covariates or NO_COVARIATES
    codes = {name: each.tolist() for name, each in reference.covariates.items()}

    def value(each: Covariate, code: float) -> object:
        return each.categories[int(code)] if each.categories else code

    found: list[dict[str, Any]] = [{} for _ in reference.history]
    for window, fields in enumerate(found):
        if known.future:
            steps = codes["history_covariates"][window] + codes["future_covariates"][window]
            fields["future_covariates"] = {
                each.name: [value(each, step[place]) for step in steps]
                for place, each in enumerate(known.future)
            }
        if known.static:
            fields["static_covariates"] = {
                each.name: value(each, codes["static_covariates"][window][place])
                for place, each in enumerate(known.static)
            }
    return found


def assert_near(found: Floats | Tensor, expected: Floats | Tensor, rtol: float = 1e-5) -> None:
    """By the largest step of each window, `[windows, steps, …]`; NaN is not compared."""
    known = np.asarray(expected, np.float64)
    assert found.shape == known.shape
    assert np.isfinite(np.asarray(found)).all()
    largest = np.nanmax(np.abs(known), axis=1, keepdims=True, initial=1e-3)
    error = np.abs(np.asarray(found, np.float64) - known) / largest
    assert np.nanmax(error) < 2 * rtol, np.unravel_index(np.nanargmax(error), error.shape)
