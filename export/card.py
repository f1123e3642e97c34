"""The model card of a bundle: `README.md`, with the front matter of the Hugging Face hub.

Every sentence comes from the manifest, the files of the bundle or its origin; what is unknown is
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foretell.bundle import evaluation, layout
from foretell.bundle.covariates import Covariate
from foretell.bundle.evaluation import Evaluation
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import Accuracy, TestResult
from foretell.bundle.verdict import baseline_names, verdict
from foretell.export.markdown import front_matter, listed, table, text
from foretell.export.origin import Origin

_TASK = "time-series-forecasting"
# Most rows of a table of channels, and of steps.
_MOST_CHANNELS, _MOST_STEPS = 40, 12
_UNITS = "in standard deviations of the training rows"
_ERRORS = f"of values {_UNITS}"


def write(folder: Path, about: Manifest, origin: Origin) -> None:
    """Write the model card of a bundle.

    Args:
        folder: Folder of the bundle, with its other files.
        about: Manifest, which lists these files.
        origin: Origin of the bundle.
    """
    measured = evaluation.read(folder, about)
    sections = {
        "What it forecasts": _task(about),
        "Covariates": _covariates(about),
        "Training": _training(about, origin),
        "Accuracy": _accuracy(about, measured),
        "Intervals": _intervals(about),
        "Limits": _limits(about, origin),
        "Use": _use(about),
        "Provenance": _provenance(about, origin),
    }
    page = [front_matter(_metadata(about, origin)), f"# {_title(about)}"]
    for title, content in sections.items():
        if parts := [*content]:
            page += [f"## {title}", *parts]
    (folder / layout.CARD).write_text("\n\n".join(page) + "\n", encoding="utf-8")


def _metadata(about: Manifest, origin: Origin) -> dict[str, object]:
    """The fields of the hub's specification that are known."""
    fields: dict[str, object] = {
        "library_name": "foretell",
        "pipeline_tag": _TASK,
        "tags": [_TASK, "onnx", about.architecture],
    }
    if about.test is not None and origin.data is not None:
        found, file = about.test.onnx or about.test.model, origin.data.path
        metrics = [
            {"type": kind, "value": getattr(found, kind), "name": f"{kind.upper()} {_ERRORS}"}
            for kind in ("mse", "mae")
        ]
        # A file that is not on the hub has its format as the type.
        data = {"type": file.suffix.removeprefix(".") or "file", "name": file.name, "split": "test"}
        result = {"task": {"type": _TASK}, "dataset": data, "metrics": metrics}
        fields["metrics"] = ["mse", "mae"]
        # The hub requires a name. The bundle may be published under another one, and keeps its
        # architecture.
        fields["model-index"] = [{"name": about.architecture, "results": [result]}]
    return fields


def _title(about: Manifest) -> str:
    # Without a name: the bundle may be published under another one.
    return f"{text(about.architecture)} that forecasts {listed(about.targets, 3)}"


def _items(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _task(about: Manifest) -> Iterator[str]:
    frequency = text(about.frequency)
    yield _items(
        [
            f"context: {about.context:,} steps of history",
            f"horizon: {about.horizon:,} steps ahead in one pass",
            f"frequency: {frequency}, as pandas names it",
            _calendar(about),
            _gaps(about),
        ]
    )
    means, deviations = about.training.mean, about.training.std
    rows = []
    for place, name in enumerate(about.channels[:_MOST_CHANNELS]):
        bound = about.bounds.get(name)
        known = about.scaler.known[place]
        rows.append(
            (
                text(name),
                "yes" if name in about.targets else "no, only read",
                f"{means[place]:.6g}" if known else "",
                f"{deviations[place]:.6g}" if known else "",
                "" if bound is None else text(str(bound)),
            )
        )
    yield "Channels, with mean and standard deviation of the training rows:"
    yield table(("channel", "forecast", "mean", "standard deviation", "bounds"), rows)
    if (more := len(about.channels) - len(rows)) > 0:
        yield f"The manifest names {more:,} more channels."


def _calendar(about: Manifest) -> str:
    if about.calendar is None:
        return "calendar: not read, so times are optional"
    return f"calendar: {listed(about.calendar.features)} of each step, so times are required"


def _gaps(about: Manifest) -> str:
    if about.observed_steps is None:
        return "missing values: none may be missing in the context"
    return (
        f"missing values: allowed, but each channel needs a value in its last "
        f"{about.observed_steps:,} steps"
    )


def _covariates(about: Manifest) -> Iterator[str]:
    known = about.covariates
    if known is None:
        return
    kinds = {
        "for history and horizon": known.future,
        "for history": about.past_covariates,
        "for each series": known.static,
    }
    rows = [
        (text(each.name), when, _type_of(each)) for when, many in kinds.items() for each in many
    ]
    yield table(("covariate", "known", "type"), rows)


def _type_of(covariate: Covariate) -> str:
    if covariate.type != "category":
        return covariate.type
    other = "; others are read as one" if covariate.other else ""
    return f"category: {listed(covariate.categories)}{other}"


def _training(about: Manifest, origin: Origin) -> Iterator[str]:
    record, data = origin.training, origin.data
    items = [
        f"architecture: {text(about.architecture)}, with {about.parameters:,} trained parameters"
    ]
    if data is not None:
        series = f", {data.series:,} series" if data.series > 1 else ""
        items.append(f"data: {text(data.path.name)}, {data.rows:,} rows{series}")
    items += [f"{split} rows: {first} to {last}" for split, (first, last) in origin.periods.items()]
    if record is not None:
        items += [
            f"epochs: {record.epochs:,}; the weights are of epoch {record.best_epoch:,}",
            f"loss: {text(record.loss)}; {record.validation_loss:.6g} in validation",
            f"learning rate: {record.learning_rate:g}, in batches of {record.batch_size:,} windows",
            f"precision: {text(record.precision)}, on {text(record.device)}; seed {record.seed}",
        ]
        if record.network is not None:
            items.append(
                f"kept unchanged: the network whose weights have the sha256 "
                f"`{record.network.sha256}`; only a decoder of covariates was trained"
            )
    yield _items(items)


def _accuracy(about: Manifest, measured: Evaluation | None) -> Iterator[str]:
    if about.test is None:
        return
    names = {name: f"repeating {what}" for name, what in baseline_names(about.step).items()}
    names |= {"model": "the model", "onnx": "the model"}
    yield f"In the test split, the model is {verdict(about.test, about.step)}."
    yield f"Errors over {about.test.windows:,} windows of the test split, {_ERRORS}:"
    rows = [(names[name], f"{one.mse:.4f}", f"{one.mae:.4f}") for name, one in _errors(about.test)]
    yield table(("forecaster", "MSE", "MAE"), rows)
    if measured is None:
        return
    yield "Mean absolute error by step ahead, of all forecast channels:"
    steps = np.linspace(0, about.horizon - 1, min(about.horizon, _MOST_STEPS)).round().astype(int)
    by_step = measured.mae.mean(axis=2)
    yield table(
        ("step", *(names[name] for name in measured.forecasters)),
        [(f"{step + 1:,}", *(f"{error:.4f}" for error in by_step[:, step])) for step in steps],
    )


def _errors(test: TestResult) -> Iterator[tuple[str, Accuracy]]:
    yield "model", test.onnx or test.model
    yield "last_value", test.last_value
    if test.seasonal_naive is not None:
        yield "seasonal_naive", test.seasonal_naive


def _intervals(about: Manifest) -> Iterator[str]:
    report = about.calibration
    if report is None:
        if about.distribution is not None:
            yield f"Quantiles are {text(about.distribution.source)}."
        elif about.calibration_missing:
            yield f"It has no quantiles: {text(about.calibration_missing)}."
        return
    yield (
        f"Quantiles reach {report.steps:,} steps ahead. They come from the errors of "
        f"{report.windows[0]:,} windows ({report.method.replace('_', ' ')})."
    )
    if not report.coverage:
        return
    yield f"Share of actual values of the test split inside intervals, and their width {_UNITS}:"
    yield table(
        ("steps", "windows", "interval", "held", "width"),
        [
            (
                f"{one.first_step:,} to {one.last_step:,}",
                f"{one.windows:,}",
                f"{one.level:.0%}",
                f"{one.coverage:.1%}",
                f"{one.width:.3f}",
            )
            for one in report.coverage
        ],
    )


def _limits(about: Manifest, origin: Origin) -> Iterator[str]:
    items = []
    if about.test is None:
        items.append("Its accuracy was not measured.")
    else:
        found = origin.periods.get("test")
        when = "" if found is None else f" from {found[0]} to {found[1]}"
        items.append(f"Its accuracy was measured in the test rows{when}, and on no other data.")
        if about.test.overlaps:
            items.append("Training rows of some series lie after test rows of others.")
    items.append(
        f"Steps after the first {about.horizon:,} are forecast from forecasts; their errors are "
        "not among those above."
    )
    if "cuda" not in about.devices or "cpu" not in about.devices:
        items.append(f"It runs on {' and '.join(about.devices)} only.")
    yield _items(items)


def _use(about: Manifest) -> Iterator[str]:
    # Not the exported name: the bundle may be published under another one.
    yield "Serve the repository, the folder that holds `MODEL/VERSION/` with this page:"
    yield "```sh\nforetell serve --models REPOSITORY\n```"
    forecast = "curl -s localhost:8000/forecast -H 'Content-Type: application/json' -d @{}".format
    if layout.EXAMPLE in about.files:
        example = "curl -s localhost:8000/models/MODEL/example | jq .request |"
        yield "Forecast the real window that the bundle carries:"
        yield f"```sh\n{example}\n    {forecast('-')}\n```"
    else:
        yield "Forecast a history, which `GET /models/MODEL` describes:"
        yield f"```sh\n{forecast('request.json')}\n```"


def _provenance(about: Manifest, origin: Origin) -> Iterator[str]:
    items = [
        f"exported: {about.created_at:%Y-%m-%d %H:%M} UTC, as `{about.name}` version "
        f"{about.version}, in {about.precision}",
        f"checkpoint: sha256 of its weights `{origin.weights}`",
    ]
    if origin.training is None:
        items.append("training: unknown to foretell, because the checkpoint was imported")
    if origin.data is not None:
        items.append(f"data: sha256 `{origin.data.sha256}`")
    worst = max((check.max_error for check in about.verification.checks), default=None)
    if worst is not None:
        items.append(
            f"verification: the graphs were compared with {text(about.verification.reference)} on "
            f"{text(about.verification.provider)}; the largest relative error was {worst:.1e}"
        )
    libraries = about.libraries.items()
    if libraries:
        shown = ", ".join(f"{text(name)} {text(version)}" for name, version in libraries)
        items.append(f"written with: {shown}")
    yield _items(items)
