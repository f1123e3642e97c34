"""Results of tools: the parts of answers that agents need, also as text."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from foretell.service.mcp.wording import place, short, translated

Fields = dict[str, Any]
Names = Sequence[str]

# Fields of a forecast, beside its columns.
_FORECAST = ("name", "timestamps", "frequency", "frequency_multiple", "frequency_alias")
_NOTES = ("rolled_from", "filled", "masked", "calibration")
_BACKTEST = ("name", "horizon", "stride", "origins", "first_origin", "last_origin", "calibration")
_SCENARIO = ("name", "mean_forecast", "difference", "quantiles", "filled", "masked")


def answered(answer: Fields, name: str, contents: list[Fields]) -> Fields:
    """The parts that forecasts and backtests share, with the contents by a name."""
    found: Fields = {
        "model": f"{answer['model']}@{answer['model_version']}",
        "model_digest": answer["model_digest"],
        name: contents,
    }
    outputs = enumerate(answer["outputs"])
    errors = [
        {"input": index, **translated(each["error"])} for index, each in outputs if each["error"]
    ]
    if errors:
        found["errors"] = errors
    if answer.get("warnings"):
        found["warnings"] = [*map(translated, answer["warnings"])]
    return found


def contents(answer: Fields) -> list[Fields]:
    """The contents of the outputs without an error."""
    return [each["content"][0] for each in answer["outputs"] if not each["error"]]


def forecast(content: Fields, columns: Names, targets: Names | None) -> Fields:
    """A forecast without the fields that agents do not need.

    Args:
        content: A forecast of the answer, with numbers `[step]` or `[step][channel]`.
        columns: Names of the channels, if the answer has no names.
        targets: Channels to keep; all if None.
    """
    found = _some(content, _FORECAST)
    chosen = None
    if content["type"].startswith("multivariate"):
        columns = content.get("channels", columns)
        chosen = [*range(len(columns))]
        if targets is not None:
            chosen = [columns.index(each) for each in targets]
        found["channels"] = [columns[each] for each in chosen]
    found["mean_forecast"] = _chosen(content["mean_forecast"], chosen)
    if "quantiles" in content:
        found["quantiles"] = _quantiles(content, chosen)
    found |= _some(content, _NOTES)
    if content.get("ill_conditioned"):
        found["ill_conditioned"] = True
    if "scenarios" in content:
        found["scenarios"] = [_scenario(each, chosen) for each in content["scenarios"]]
    return found


def _scenario(scenario: Fields, chosen: list[int] | None) -> Fields:
    found = _some(scenario, _SCENARIO)
    for name in ("mean_forecast", "difference"):
        found[name] = _chosen(found[name], chosen)
    if "quantiles" in found:
        found["quantiles"] = _quantiles(found, chosen)
    return found


def _quantiles(content: Fields, chosen: list[int] | None) -> dict[str, list[Any]]:
    """Rows of the chosen channels by level."""
    return {level: _chosen(rows, chosen) for level, rows in content["quantiles"].items()}


def _chosen(rows: list[Any], chosen: list[int] | None) -> list[Any]:
    return rows if chosen is None else [[row[each] for each in chosen] for row in rows]


def backtest(content: Fields) -> Fields:
    """A backtest without the errors of each step."""
    channels = []
    for channel in content["channels"]:
        found = {name: value for name, value in channel.items() if name != "steps"}
        if "intervals" in found:
            names = ("level", "coverage", "width")
            found["intervals"] = [_some(each, names) for each in found["intervals"]]
        channels.append(found)
    return {**_some(content, _BACKTEST), "channels": channels}


def _some(fields: Fields, names: Iterable[str]) -> Fields:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def forecast_text(fields: Fields) -> str:
    """A table of each forecast, with a row for each step."""
    lines = [f"Forecasts of {fields['model']}."]
    for each in fields["forecasts"]:
        series = short(each["name"])
        blocks = [(series, each)]
        if "scenarios" in each:
            named = [(short(one["name"]), one) for one in each["scenarios"]]
            blocks = [(f"{series}, scenario {name}", one) for name, one in named]
        for name, block in blocks:
            lines += ["", f"{name}:", *_steps(each, block)]
        lines += [f"{note}: {each[note]}" for note in (*_NOTES, "ill_conditioned") if note in each]
    return "\n".join([*lines, *_remarks(fields)])


def _steps(forecast: Fields, block: Fields) -> list[str]:
    """The lines of a table: the times, the forecasts, and their quantiles."""
    names = forecast.get("channels", ["forecast"])
    rows: list[list[Any]] = [[] for _ in block["mean_forecast"]]
    heads = []
    parts = {"": block["mean_forecast"]}
    parts |= {f" q{level}": values for level, values in block.get("quantiles", {}).items()}
    for label, values in parts.items():
        heads += [f"{short(name)}{label}" for name in names]
        for row, value in zip(rows, values, strict=True):
            row += value if isinstance(value, list) else [value]
    times = forecast.get("timestamps", range(1, len(rows) + 1))
    head = "time" if "timestamps" in forecast else "step"
    return _csv([[head, *heads], *([time, *row] for time, row in zip(times, rows, strict=True))])


def backtest_text(fields: Fields) -> str:
    """A table of each backtest, with a row for each channel."""
    lines = [f"Backtests of {fields['model']}, in the units of each channel."]
    for each in fields["backtests"]:
        lines += [
            "",
            f"{short(each['name'])}: {each['origins']} forecasts of {each['horizon']} steps, from "
            f"{each['first_origin']} to {each['last_origin']}",
        ]
        rows = [_scores(channel) for channel in each["channels"]]
        lines += table(rows)
    return "\n".join([*lines, *_remarks(fields)])


def _scores(channel: Fields) -> Fields:
    seasonal = channel["seasonal_naive"] or {}
    scores = {
        "channel": channel["name"],
        "mae": channel["mae"],
        "mse": channel["mse"],
        "mae / mae of the last value": channel["last_value"]["relative_mae"],
        "mae / mae of the last season": seasonal.get("relative_mae"),
    }
    for each in channel.get("intervals", ()):
        scores[f"coverage of {each['level']}"] = each["coverage"]
        scores[f"width of {each['level']}"] = each["width"]
    return scores


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a table, with a column for each name in any row."""
    names = [*dict.fromkeys(name for row in rows for name in row)]
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    return _csv([names, *cells]) if rows else []


def _cell(value: object) -> object:
    return short(value) if isinstance(value, str) else value


def _csv(rows: Iterable[Iterable[Any]]) -> list[str]:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().rstrip("\n").split("\n")


def _remarks(fields: Fields) -> list[str]:
    errors = [f"Error: {place(each)}{each['message']}" for each in fields.get("errors", ())]
    warnings = [f"Warning: {place(each)}{each['message']}" for each in fields.get("warnings", ())]
    return ["", *errors, *warnings] if errors or warnings else []
