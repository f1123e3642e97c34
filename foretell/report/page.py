"""A page about a bundle: the model, its accuracy, its intervals and its attention."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from foretell.bundle import checksums, evaluation, manifest
from foretell.bundle.evaluation import Evaluation
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import TestResult
from foretell.bundle.verdict import baseline_names, verdict
from foretell.plots.evidence import figure_of as evidence_figure
from foretell.plots.forecasts import bands, figure_of
from foretell.predict.evidence import Evidence
from foretell.predict.forecasts import Forecast
from foretell.report.charts import Charts, calibration_curve, errors_by_step
from foretell.report.example import run_example
from foretell.terminal.tables import Facts, interval_facts, verification_facts
from foretell.terminal.words import numbers, period

# Largest number of channels with a column each in the table of the example.
_MOST_CHANNELS = 12
_STRONGEST = 5


class Chart(NamedTuple):
    """A picture of the page with its caption."""

    drawing: Markup
    caption: str


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        title: Heading.
        texts: Paragraphs.
        parts: Tables and charts.
    """

    title: str
    texts: Sequence[str]
    parts: Sequence[Facts | Chart]


def render(folder: Path) -> str:
    """Render the page, which needs no other file, no script and no other host.

    Args:
        folder: Folder of the bundle.

    Raises:
        BundleError: the bundle is damaged.
    """
    about = manifest.read(folder)
    checksums.check(folder, about.files)
    charts = Charts()
    measured = evaluation.read(folder, about)
    sections = [
        _model(about),
        _accuracy(about, measured, charts),
        _intervals(about, measured, charts),
        *_example(folder, about, charts),
        _verification(about),
        _making(about),
    ]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files("foretell.report").joinpath("page.html.jinja").read_text("utf-8")
    page = environment.from_string(source)
    title = f"{about.name}@{about.version}"
    return page.render(title=title, lead=_lead(about), sections=sections)


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _lead(about: Manifest) -> str:
    context, horizon = (
        f"{steps:,} steps ({period(steps, about.step)})" for steps in (about.context, about.horizon)
    )
    of = "all of them" if about.targets == about.channels else f"{len(about.targets)} of them"
    if len(about.channels) == 1:
        of = "the next"
    return (
        f"{about.architecture} with {_counted(about.parameters, 'parameter')}: reads {context} of "
        f"{_counted(len(about.channels), 'channel')} and forecasts {of}, {horizon} ahead."
    )


def _model(about: Manifest) -> Section:
    facts = (
        ("exported", f"{about.created_at:%Y-%m-%d %H:%M} UTC"),
        ("steps", f"of {period(1, about.step)} ({about.frequency})"),
        ("calendar", "read" if about.calendar is not None else "not read"),
        ("precision", about.precision),
        ("runs on", ", ".join(about.devices)),
        ("attention", _stages(about)),
    )
    rows = []
    known = about.scaler.training
    means, deviations = numbers(np.array(known.mean)), numbers(np.array(known.std))
    for name, mean, deviation in zip(about.channels, means, deviations, strict=True):
        bound = about.bounds.get(name)
        forecast = "yes" if name in about.targets else "no"
        rows.append((name, forecast, mean, deviation, "" if bound is None else str(bound)))
    head = ("channel", "forecast", "mean", "standard deviation", "bounds")
    return Section(
        "The model",
        (),
        (
            Facts("Properties", ("", ""), facts, prose=True),
            Facts("Channels, with mean and standard deviation of the training rows", head, rows),
        ),
    )


def _stages(about: Manifest) -> str:
    return ", ".join(f"{stage.name} ({stage.mechanism})" for stage in about.attention) or "none"


def _accuracy(about: Manifest, measured: Evaluation | None, charts: Charts) -> Section:
    title = "Accuracy"
    if about.test is None:
        return Section(title, ("The model was exported without its training data.",), ())
    names = _names(about)
    text = f"On the test split, the model is {verdict(about.test, about.step)}."
    rows = [(names[name], f"{one.mse:.4f}", f"{one.mae:.4f}") for name, one in _errors(about.test)]
    windows = _counted(about.test.windows, "window")
    head = ("forecaster", "MSE", "MAE")
    parts: list[Facts | Chart] = [
        Facts(f"Errors over {windows} of the test split, in standard deviations", head, rows)
    ]
    if measured is not None:
        parts += _by_channel_and_step(about, measured, names, charts)
    return Section(title, (text,), parts)


def _names(about: Manifest) -> dict[str, str]:
    repeating = {name: f"repeating {what}" for name, what in baseline_names(about.step).items()}
    return {"model": about.name, "onnx": about.name, **repeating}


def _errors(test: TestResult) -> Iterator[tuple[str, Any]]:
    yield "onnx", test.onnx or test.model
    for name in ("last_value", "seasonal_naive"):
        if (found := getattr(test, name)) is not None:
            yield name, found


def _by_channel_and_step(
    about: Manifest, measured: Evaluation, names: dict[str, str], charts: Charts
) -> Iterator[Facts | Chart]:
    caption = "Mean absolute error by step ahead"
    yield Chart(
        charts.draw(partial(errors_by_step, measured, names, about.targets), caption), caption
    )
    forecasters = [names[name] for name in measured.forecasters]
    by_channel = measured.mae.mean(axis=1)
    yield Facts(
        "Mean absolute error by channel",
        ("channel", *forecasters),
        [
            (name, *(f"{error:.4f}" for error in by_channel[:, place]))
            for place, name in enumerate(about.targets)
        ],
    )
    by_step = measured.mae.mean(axis=2)
    steps = np.unique(np.linspace(0, about.horizon - 1, 12).round().astype(int))
    yield Facts(
        "Mean absolute error by step, of all channels",
        ("step", *forecasters),
        [(str(step + 1), *(f"{error:.4f}" for error in by_step[:, step])) for step in steps],
    )


def _intervals(about: Manifest, measured: Evaluation | None, charts: Charts) -> Section:
    title, report = "Intervals", about.calibration
    if report is None and about.distribution is not None:
        return Section(title, (f"Quantiles are {about.distribution.source}.",), ())
    if report is None:
        return Section(
            title, (f"No quantiles: {about.calibration_missing or 'reason unknown'}.",), ()
        )
    method = report.method.replace("_", " ")
    text = (
        f"Quantiles reach {report.steps:,} steps ahead. They come from the errors of "
        f"{_counted(report.windows[0], 'window')} that the model was not trained on ({method})."
    )
    parts: list[Facts | Chart] = [interval_facts(report)] if report.coverage else []
    if measured is not None and len(measured.levels):
        caption = (
            "Calibration: the share of actual values of the test split at or below each quantile, "
            "for all channels and (thin lines) for each. If many values are equal, such as the "
            "zeros of a night, it is the possible share that is nearest to the level"
        )
        curve = partial(calibration_curve, measured.levels, measured.reached, about.targets)
        parts.append(Chart(charts.draw(curve, caption), caption))
        shares = zip(measured.levels, measured.reached.mean(axis=1), strict=True)
        cells = [(f"{level:g}", f"{share:.1%}") for level, share in shares]
        parts.append(Facts("Calibration, of all channels", ("level", "at or below it"), cells))
    return Section(title, (text,), parts)


def _example(folder: Path, about: Manifest, charts: Charts) -> Iterator[Section]:
    if "cpu" not in about.devices:
        text = "A CPU has no kernels for some of its operators, so nothing was run."
        yield Section("An example", (text,), ())
        return
    found = run_example(folder, about)
    if found is None:
        return
    forecast, stages = found
    pairs = " and ".join(f"{high - low:.0%}" for low, high in reversed(bands(forecast.quantiles)))
    within = f", with intervals of {pairs}" if pairs else ""
    of = f"series {forecast.series}, " if forecast.series else ""
    split = "the data" if about.test is None else "the test split"
    text = (
        f"A typical window of {of}{split}, whose error is the median. The thick line is the "
        f"forecast{within}, the thin line the actual values."
    )
    caption = f"History, forecast and actual values of {_counted(len(about.targets), 'channel')}"
    drawn = charts.draw(partial(figure_of, [forecast], ""), caption)
    yield Section("An example", (text,), (Chart(drawn, caption), _steps(forecast)))
    if stages:
        caption = "Attention of each stage"
        drawn = charts.draw(partial(evidence_figure, stages, ""), caption)
        means = "Weights are means over heads, and over an axis of channels if there is one."
        yield Section("Attention weights", (means,), (Chart(drawn, caption), _strongest(stages)))


def _steps(forecast: Forecast) -> Facts:
    shown = [
        numbers(np.concatenate(both))
        for both in zip(forecast.values.T, forecast.actual.T, strict=True)
    ]
    places = range(min(len(forecast.targets), _MOST_CHANNELS))
    head = [title for at in places for title in (forecast.targets[at], "actual")]
    count = len(forecast.times)
    rows = [
        (
            time.replace("T", " ").removesuffix(":00"),
            *(cell for at in places for cell in shown[at][step::count]),
        )
        for step, time in enumerate(forecast.times)
    ]
    return Facts("The example's forecast, and actual values", ("time", *head), rows)


def _strongest(stages: Sequence[Evidence]) -> Facts:
    rows = []
    for stage in stages:
        if stage.lags is not None:
            lags = stage.lags
            names = [
                f"lag {lag} ({words})" if words else f"lag {lag}"
                for lag, words in zip(lags.positions, lags.periods, strict=True)
            ]
            found = list(zip(names, lags.weights, strict=True))[:_STRONGEST]
        else:
            rows_of = stage.weights[stage.ahead] if stage.ahead.any() else stage.weights
            found = stage.strongest(rows_of.mean(axis=0), _STRONGEST)
        rows.append(
            (stage.name, stage.kind, ", ".join(f"{name} {weight:.1%}" for name, weight in found))
        )
    return Facts("Largest weights", ("stage", "mechanism", "looked at"), rows, prose=True)


def _verification(about: Manifest) -> Section:
    text = "The graph was compared with the trained model before the bundle was written."
    return Section("Verification", (text,), (verification_facts(about.verification),))


def _making(about: Manifest) -> Section:
    facts = (
        ("in a faster form", ", ".join(about.rewrites) or "nothing"),
        ("as trained", ", ".join(about.plain) or "nothing"),
        ("written with", ", ".join(f"{name} {one}" for name, one in about.libraries.items())),
        ("configuration", json.dumps(about.config)),
    )
    sums = tuple(about.files.items())
    return Section(
        "How it was made",
        (),
        (Facts("Parts", ("", ""), facts, prose=True), Facts("Files", ("name", "sha256"), sums)),
    )
