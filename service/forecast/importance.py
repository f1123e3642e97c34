"""Importance: how far a forecast moves when a channel or a covariate says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import NO_COVARIATES, Covariate
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.service.arrays import FORECAST, Arrays
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.origins import LIMITS, max_origins
from foretell.service.forecast.warnings import AnswerWarning, warning
from foretell.service.settings import Settings

if TYPE_CHECKING:
    from foretell.service.forecast.job import Job

# The forecasts of replaced windows, among the outputs of graphs.
REPLACED = "replaced"
# Fields of numbers by target.
CHANGES = ("change", "relative")
Kind = Literal["channel", "past", "future", "static"]


class Replacement(NamedTuple):
    """A channel or a covariate, and the codes that replace it.

    Attributes:
        columns: Its places along the last axis of the history, for a channel or a past covariate,
            or of the codes of its kind.
        codes: `[variants, columns]`: its training mean, or for a boolean or a category each of its
            values. NaN stands for the mean of the window, where the bundle has no other; a static
            number without one has no variants.
    """

    name: str
    kind: Kind
    columns: list[int]
    codes: NDArray[np.float64]


def replacements(manifest: Manifest) -> list[Replacement]:
    """The replacements of all channels and covariates of a model."""
    channels, scaler = manifest.channels, manifest.scaler
    means = np.where(scaler.known, scaler.training.mean, np.nan).tolist()
    known = manifest.covariates or NO_COVARIATES
    found = [
        Replacement(name, "channel", [column], np.array([[means[column]]]))
        for name in manifest.targets
        for column in [channels.index(name)]
    ]
    for each in manifest.past_covariates:
        columns = [channels.index(name) for name in each.channels]
        codes = np.eye(len(columns)) if each.type == "category" else _codes(each, means[columns[0]])
        found.append(Replacement(each.name, "past", columns, codes))
    for column, each in enumerate(known.future):
        mean = np.nan if each.mean is None else each.mean
        found.append(Replacement(each.name, "future", [column], _codes(each, mean)))
    for column, each in enumerate(known.static):
        codes = np.empty((0, 1))
        if each.mean is not None or each.type != "number":
            codes = _codes(each, each.mean or 0.0)
        found.append(Replacement(each.name, "static", [column], codes))
    return found


def _codes(covariate: Covariate, mean: float) -> NDArray[np.float64]:
    """Codes `[variants, 1]` of one column."""
    if covariate.type == "number":
        return np.array([[mean]])
    count = 2 if covariate.type == "boolean" else len(covariate.categories)
    return np.arange(count, dtype=np.float64)[:, None]


def without_means(manifest: Manifest) -> list[AnswerWarning]:
    """The warnings of channels and covariates whose training means the bundle lacks."""
    known, warnings = replacements(manifest), []
    if names := [each.name for each in known if np.isnan(each.codes).any()]:
        text = f"the bundle has no training mean of {listed(names)}: that of the window replaced it"
        warnings.append(warning("window_mean", text, "options.importance"))
    if names := [each.name for each in known if not len(each.codes)]:
        text = f"the bundle has no training mean of {listed(names)}: no change is measured"
        warnings.append(warning("window_mean", text, "options.importance"))
    return warnings


def replaced(job: Job, settings: Settings) -> Job:
    """The job of the first window of each input, once for each code of each replacement.

    Its windows are input by input. InvalidInputError: there are too many.
    """
    manifest, rows = job.model.manifest, job.own_histories
    variants = [(each, codes) for each in replacements(manifest) for codes in each.codes]
    count = len(rows) * len(variants)
    horizon, passes = job.options.horizon, job.options.passes
    most = max_origins(1, horizon, passes, 0, manifest, settings, beside=job.windows)
    if count > most:
        remedy = "leave it out, or raise the server's limits"
        if len(variants) <= max_origins(1, horizon, passes, 0, manifest, settings, beside=1):
            remedies = []
            if job.past is not None:
                remedies.append("set options.calibration to 'stored'")
            if len(job.history) > 1:
                remedies.append(f"send fewer {'inputs' if len(rows) > 1 else 'scenarios'}")
            remedy = ", or ".join(remedies)
        taken = f"1 input takes {len(variants)} more forecasts"
        if len(rows) > 1:
            taken = f"{len(rows)} inputs take {len(variants)} more forecasts each"
        raise InvalidInputError(
            f"{taken}, and there is room for {most} in all ({LIMITS}); {remedy}",
            param="options.importance",
        )
    given = {
        "history": job.history,
        "calendar": job.calendar,
        "future": job.covariates,
        "static": job.static,
    }
    arrays = {
        name: np.repeat(values[rows], len(variants), axis=0)
        for name, values in given.items()
        if values is not None
    }
    for number, (each, codes) in enumerate(variants):
        of_history = each.kind in ("channel", "past")
        own = arrays["history" if of_history else each.kind][number :: len(variants)]
        if np.isnan(codes).any():
            codes = np.nanmean(own[..., each.columns], axis=1, keepdims=True)
        own[..., each.columns] = codes
    return replace(
        job,
        options=replace(job.options, attention=None),
        entries=[],
        history=arrays["history"],
        calendar=arrays.get("calendar"),
        covariates=arrays.get("future"),
        static=arrays.get("static"),
        metadata=None,
        past=None,
    )


def importance(job: Job, outputs: Arrays) -> list[list[dict[str, Any]]]:
    """The importance of all replacements, for each input: mean absolute changes `[targets]`."""
    manifest, horizon = job.model.manifest, job.options.horizon
    known = replacements(manifest)
    counts = [len(each.codes) for each in known]
    base = outputs[FORECAST][job.own_histories, :horizon].astype(np.float64)
    moved = outputs[REPLACED][:, :horizon].reshape(len(base), sum(counts), *base.shape[1:])
    change = np.abs(moved - base[:, None]).mean(axis=2)
    ends = np.cumsum(counts)
    change = np.stack(
        [
            change[:, end - count : end].mean(axis=1) if count else np.full_like(base[:, 0], np.nan)
            for count, end in zip(counts, ends, strict=True)
        ],
        axis=1,
    )
    scaler = manifest.target_scaler
    relative = change / np.where(scaler.known, scaler.training.std, np.nan)
    return [
        [
            {"name": each.name, "kind": each.kind, "change": own, "relative": part}
            for each, own, part in zip(known, changes, parts, strict=True)
        ]
        for changes, parts in zip(change, relative, strict=True)
    ]
