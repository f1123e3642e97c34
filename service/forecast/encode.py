"""Encode the outputs of a job as JSON, inside KServe's ForecastResponse."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from foretell.service.arrays import DISTRIBUTION, FORECAST, MARGIN, Arrays
from foretell.service.engine.learned import Key, Offsets
from foretell.service.engine.recalibration import stride_of
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, ServiceError, error_object, kept
from foretell.service.forecast.attention import describe
from foretell.service.forecast.importance import CHANGES, importance, replacements
from foretell.service.forecast.job import PAST, Job
from foretell.service.forecast.options import Options
from foretell.service.forecast.series import Series
from foretell.service.forecast.times import write_labels
from foretell.service.forecast.warnings import AnswerWarning, outside, warning
from foretell.service.http.body import ALWAYS, JSON
from foretell.timeaxis.frequency import Frequency

Floats = NDArray[np.float32]
_Entry = TypeVar("_Entry")

_QUANTILES = "quantiles"
# Work, as bytes of numbers that are written in the same time: the rest of a window, a time with a
# UTC offset of its own, a sorted byte of numbers, and a member of an object beside its name.
_WINDOW, _LABEL, _SORTED, _MEMBER = 4096, 64, 8, 64


def encoding_work(job: Job, outputs: Arrays) -> int:
    """Work of encoding, as bytes of numbers."""
    if job.options.quantiles and job.model.intervals.most is not None:
        # These quantiles are searched for: even a few take milliseconds.
        return ALWAYS
    size = len(job.options.quantiles) * outputs[FORECAST].nbytes
    for rows in outputs.values():
        size += rows.nbytes
    if job.past is not None:
        size += _SORTED * outputs[PAST].nbytes
    if job.options.attention is not None:
        # A whole map is made of a few lags or keys.
        channels = len(job.model.manifest.channels)
        size += 4 * len(job.history) * job.options.attention.values(channels)
    if job.metadata is not None:
        size += len(job.metadata)
    return size + _entries_work(job, outputs[FORECAST][:1].nbytes)


def _entries_work(job: Job, numbers: int) -> int:
    """The work of entries, beside the numbers of their windows; of one forecast it is `numbers`."""
    size, members = 0, 0
    if job.replaced is not None:
        moves = len(CHANGES) * len(job.model.manifest.targets) * np.dtype(np.float32).itemsize
        names = [each.name for each in replacements(job.model.manifest)]
        members = sum(len(name) + _MEMBER + moves for name in names)
    for entry in job.entries:
        size += _WINDOW
        if not isinstance(entry, Series):
            continue
        size += len(entry.name) + _members(entry.filled) + members
        if entry.timeline and entry.timeline.clock.varies:
            size += _LABEL * job.options.horizon
        if entry.scenarios:
            size += _WINDOW * (entry.windows - 1)
            # The first one and its quantiles are written twice, and of each its difference.
            size += numbers * (1 + len(job.options.quantiles) + entry.windows)
            size += sum(len(each.name) + _members(each.filled) for each in entry.scenarios)
    return size


def _members(filled: dict[str, int]) -> int:
    return sum(len(name) + _MEMBER for name in filled)


def encode(job: Job, outputs: Arrays) -> tuple[bytes, dict[str, str]]:
    """Write the answer from outputs `[windows, …]`; raise the first error if all inputs failed."""
    quantiles = quantiles_of(job, outputs) if job.options.quantiles else None
    far = outside(
        job.model.manifest,
        job.history,
        outputs[FORECAST][:, : job.options.horizon],
        job.place_of,
        job.own_histories,
    )
    moves = iter(importance(job, outputs) if job.replaced is not None else ())

    def content(index: int, series: Series) -> dict[str, Any]:
        moved = next(moves, None)
        try:
            answer = _forecast(job, outputs, quantiles, index, series, is_finite=far is None)
        except ServiceError:
            job.refuse(index)
            raise
        if moved is not None:
            order = series.columns if job.model.manifest.columns is None else None
            answer["importance"] = [
                each | {name: _shaped(each[name][None], series, order)[0] for name in CHANGES}
                for each in moved
            ]
        return answer

    return respond(job, "forecast", content, warn(job, far)), {"content-type": JSON}


def warn(job: Job, far: list[AnswerWarning] | None) -> list[AnswerWarning]:
    """The warnings of an answer; `far` are the warnings from `outside`."""
    options, warnings = job.options, job.warnings + (far or [])
    if options.passes > 1:
        steps = job.model.manifest.horizon
        text = f"the steps from {steps} on, counted from 0, are forecast from forecasts"
        warnings.append(warning("rolled", text, "options.horizon"))
    if count := sum([entry.gaps for entry in job.entries if isinstance(entry, Series)]):
        warnings.append(gaps(count, options))
    return warnings


def gaps(count: int, options: Options) -> AnswerWarning:
    done = "left out" if options.of_gaps == "masked" else "filled in"
    text = f"{count} missing values of what the model read were {done} ({options.missing})"
    return warning(options.of_gaps, text, "options.missing")


def respond(
    job: Job,
    kind: str,
    content: Callable[[int, Series], dict[str, Any]],
    warnings: list[AnswerWarning],
) -> bytes:
    """Write an answer with an output for every input; if all failed, raise the first one's error.

    `content` takes the index of an input and the input, and returns the content of its output.
    """
    fields: dict[str, Any] = {"warnings": warnings} if warnings else {}
    if job.metadata is not None:
        fields["metadata"] = orjson.Fragment(job.metadata)
    job.identifier, written = write_answer(kind, job.model, job.entries, content, fields)
    return written


def write_answer(
    kind: str,
    model: Model,
    entries: Sequence[_Entry | ServiceError],
    content: Callable[[int, _Entry], dict[str, Any]],
    fields: Mapping[str, Any],
) -> tuple[str, bytes]:
    """Write an answer with an output for every entry; if all failed, raise the first one's error.

    Args:
        kind: The kind of its outputs, such as `forecast`.
        model: The model of the request.
        entries: Every input, or its error.
        content: Makes the content of an output, from the index of an input and the input.
        fields: Further fields.

    Returns:
        Its id, and the answer.
    """
    # The system's random bits would release the interpreter to other threads.
    identifier = f"{kind}-{random.getrandbits(128):032x}"
    answers: list[dict[str, Any]] = []
    failures: list[ServiceError] = []
    for index, entry in enumerate(entries):
        answer: dict[str, Any] = {
            "type": f"time_series_{kind}",
            "id": f"{identifier}-{index}",
            "status": "completed",
            "content": [],
            "error": None,
        }
        answers.append(answer)
        try:
            if isinstance(entry, ServiceError):
                raise entry
            answer["content"] = [content(index, entry)]
        except ServiceError as error:
            failures.append(kept(error))
            answer |= {"status": "error", "error": error_object(error)}
    if len(failures) == len(answers):
        raise failures[0]
    manifest = model.manifest
    response: dict[str, Any] = {
        "id": identifier,
        "created_at": int(time.time()),
        "status": "partial" if failures else "completed",
        "error": None,
        "model": manifest.name,
        "model_version": manifest.version,
        "model_digest": model.digest,
        "outputs": answers,
        **fields,
    }
    return identifier, orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)


def _forecast(
    job: Job,
    outputs: Arrays,
    quantiles: Floats | None,
    index: int,
    series: Series,
    *,
    is_finite: bool,
) -> dict[str, Any]:
    windows = [
        _window(job, outputs, quantiles, (index, series, number), is_finite=is_finite)
        for number in range(series.windows)
    ]
    answer: dict[str, Any] = {
        "type": f"{'univariate' if series.univariate else 'multivariate'}_time_series",
        "name": series.name,
        "mean_forecast": windows[0]["mean_forecast"],
        "start_timestamp": "",
        **_frequency(job.model.manifest.frequency),
    }
    if series.timeline is not None:
        times = write_labels(series.timeline, job.options.horizon)
        answer["start_timestamp"] = orjson.Fragment(times[1 : times.index(b'"', 2) + 1])
        answer["timestamps"] = orjson.Fragment(times)
    answer |= windows[0] | _notes(job, series)
    if series.scenarios:
        # Each scenario has its own.
        answer.pop("attention", None)
        answer["scenarios"] = [
            {
                "name": scenario.name,
                "difference": window["mean_forecast"] - windows[0]["mean_forecast"],
                **window,
            }
            for scenario, window in zip(series.scenarios, windows, strict=True)
        ]
    return answer


def _window(
    job: Job,
    outputs: Arrays,
    quantiles: Floats | None,
    place: tuple[int, Series, int],
    *,
    is_finite: bool,
) -> dict[str, Any]:
    """The forecast of a window, of an input with its index and a scenario's number."""
    manifest, options = job.model.manifest, job.options
    index, series, number = place
    row, order = series.row + number, series.columns if manifest.columns is None else None
    # Outputs in the answer: others need not be finite.
    used = [] if manifest.margin_bound is None else [MARGIN]
    if options.attention is not None:
        used.extend(options.attention.outputs)
    own = {FORECAST: outputs[FORECAST][row, : options.horizon]}
    for name in used:
        own[name] = outputs[name][row]
    if quantiles is not None:
        own[_QUANTILES] = quantiles[:, row]
    for name, values in own.items():
        # All forecasts together were checked before.
        if not (is_finite and name == FORECAST) and not np.isfinite(values).all():
            raise not_finite(series.place(index, number))
    answer: dict[str, Any] = {"mean_forecast": _shaped(own[FORECAST], series, order)}
    if quantiles is not None:
        answer["quantiles"] = {
            str(level): _shaped(values, series, order)
            for level, values in zip(options.quantiles, own[_QUANTILES], strict=True)
        }
    filled = series.scenarios[number].filled if series.scenarios else series.filled
    if filled:
        answer[options.of_gaps] = filled
    if manifest.margin_bound is not None:
        answer["ill_conditioned"] = bool(own[MARGIN] < manifest.margin_bound)
    if options.attention is not None:
        answer["attention"] = describe(
            options.attention, own, series.timeline, manifest, series.columns
        )
    return answer


@lru_cache
def _frequency(alias: str) -> dict[str, Any]:
    """Fields of a frequency: KServe's, and those that KServe lacks."""
    frequency = Frequency.parse(alias)
    fields: dict[str, Any] = {"frequency": frequency.kserve}
    if frequency.multiple != 1:
        fields["frequency_multiple"] = frequency.multiple
    if Frequency.parse(frequency.kserve) != frequency:
        fields["frequency_alias"] = str(frequency)
    return fields


def not_finite(place: str) -> InvalidInputError:
    """The error of a series, at a place in the request, whose forecast is not finite."""
    return InvalidInputError(
        "the model's forecast of this series is not finite: its values are too far from those it "
        "was trained on",
        param=place,
    )


def _notes(job: Job, series: Series) -> dict[str, Any]:
    """Fields that all windows of an input share."""
    manifest = job.model.manifest
    notes: dict[str, Any] = {}
    if job.past is not None:
        origins = len(job.past.origins[series.row])
        notes["calibration"] = {"method": "history", "origins": origins}
    if job.options.passes > 1:
        notes["rolled_from"] = manifest.horizon
    if job.learned:
        notes["calibration"] = learned_from(job.learned[series.row])
    if job.ledger is not None:
        notes["in_ledger"] = job.is_kept(series)
    if manifest.columns is not None:
        notes["channels"] = manifest.targets
    elif series.columns is not None:
        notes["channels"] = [manifest.channels[column] for column in series.columns]
    return notes


def _shaped(values: Floats, series: Series, order: list[int] | None) -> Floats:
    """Values `[steps, targets]` in the shape and the order of the input."""
    if series.univariate:
        return np.ascontiguousarray(values[:, 0])
    return np.ascontiguousarray(values if order is None else values[:, order])


def quantiles_of(job: Job, outputs: Arrays) -> Floats:
    """Quantiles `[levels, windows, horizon, targets]` of a job with requested levels."""
    options, intervals, past = job.options, job.model.intervals, job.past
    forecast = outputs[FORECAST][:, : options.horizon]
    if options.calibration == "ledger":
        found = _learned(job, forecast)
    elif past is None:
        further = outputs.get(DISTRIBUTION)
        found = intervals.quantiles(job.history, forecast, options.quantiles, further)
    else:
        errors = intervals.errors(past.history, outputs[PAST][:, : options.horizon], past.future)
        found = intervals.corrected(
            job.history,
            forecast,
            options.quantiles,
            [errors[span] for span in past.spans],
            stride_of(options.horizon),
        )
    job.quantiles = found
    return found


def _learned(job: Job, forecast: Floats) -> Floats:
    """Quantiles with the offsets that the ledger has learned, or else the bundle's.

    The bundle's are also used for a window whose quantiles would not be finite.
    """
    model, ledger = job.model, job.ledger
    stored = model.intervals.calibration
    assert stored is not None  # noqa: S101 - what `check_corrected` makes sure of
    found: list[tuple[Offsets, Key] | None] = [None] * len(forecast)
    for entry in job.entries:
        if isinstance(entry, Series) and ledger is not None:
            name = entry.name if entry.is_named else ""
            key = Key(model.name, model.version, ledger.namespace, name)
            own = ledger.learned.find(key, model.digest)
            found[entry.row : entry.row + entry.windows] = [own] * entry.windows
    job.learned = found

    def quantiles() -> Floats:
        calibrations = [stored if each is None else each[0].calibration for each in found]
        return model.intervals.learned(job.history, forecast, job.options.quantiles, calibrations)

    values = quantiles()
    far = np.flatnonzero((~np.isfinite(values)).any(axis=(0, 2, 3)))
    for window in far:
        found[window] = None
    if len(far):
        values = quantiles()
    return values


def learned_from(found: tuple[Offsets, Key] | None) -> dict[str, Any]:
    """The note on the origin of learned quantiles."""
    if found is None:
        return {"method": "ledger", "origins": 0, "of": "bundle"}
    offsets, key = found
    return {
        "method": "ledger",
        "origins": offsets.origins,
        "of": "model" if key.name is None else "series",
    }
