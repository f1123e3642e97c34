"""The forecast of a bundle's example window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.bundle import calibration, example
from foretell.bundle.manifest import Manifest
from foretell.client.errors import InvalidInputError
from foretell.data.table import Table
from foretell.predict.evidence import Evidence, find_evidence
from foretell.predict.forecasts import Forecast, request_forecasts
from foretell.predict.histories import History
from foretell.predict.in_process import opened
from foretell.service.forecast.covariates import example_covariates
from foretell.timeaxis.timestamps import parse

LEVELS = (0.025, 0.1, 0.9, 0.975)


def run_example(folder: Path, manifest: Manifest) -> tuple[Forecast, list[Evidence]] | None:
    """Forecast the example with quantiles and attention.

    Returns:
        Forecast and evidence; None if the bundle has no example. The evidence is empty if the model
        has no attention, or more values of it than a server sends.

    Raises:
        BundleError: the bundle is damaged.
        RefusedError: the bundle cannot run here.
    """
    found = example.read(folder, manifest)
    if found is None:
        return None
    times, values = found.timestamps[-manifest.context :], found.history[-manifest.context :]
    stamps = [parse(text) for text in times]
    walls, offsets = np.array([stamp.wall for stamp in stamps], "M8[us]"), None
    if stamps[0].utc_offset is not None:
        offsets = np.array([stamp.utc_offset for stamp in stamps], "m8[us]")
    table = Table(walls, values, manifest.channels, manifest.step, offsets)
    future = found.future_covariates
    if future is not None:
        future = future[-manifest.context - manifest.horizon :]
    fields = example_covariates(replace(found, future_covariates=future), manifest)
    history = History(found.series, table, values[:0], fields)
    options: dict[str, Any] = {"quantiles": _levels(manifest)}
    with opened(folder, "cpu") as client:
        (card,) = client.models()

        def run(**more: object) -> Forecast:
            given = {name: each for name, each in (options | more).items() if each}
            answers = request_forecasts(client, card.name, card, [history], given, "example")
            return replace(answers.forecasts[0], actual=found.actual)

        try:
            forecast = run(attention={"heads": "mean"} if manifest.attention else None)
        except InvalidInputError:
            forecast = run()
    return forecast, find_evidence(forecast.attention, forecast.times[0])


def _levels(manifest: Manifest) -> list[float]:
    report = manifest.calibration
    if report is None:
        return []
    low, high = calibration.bounds(report.windows[0])
    return [level for level in LEVELS if low <= level <= high]
