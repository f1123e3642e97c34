"""The tool that reads scores from the ledger."""

from __future__ import annotations

from typing import Any

from foretell.service.api.ledger_types import AccuracyQuery
from foretell.service.mcp.caller import Caller
from foretell.service.mcp.results import Fields, table
from foretell.service.mcp.schemas import arguments, fields
from foretell.service.mcp.tools import Tool, model_and_version

# Rows, if the client does not choose.
_ROWS = 20
_QUERY = ("by", "series", "channel", "since", "until")
_GROUPS = ("version", "step", "channel", "series", "namespace", "frequency", "day")
_SCORES = ("count", "mae", "rmse", "bias", "naive_mae", "mase")
_DESCRIPTION = """\
How good the past forecasts of a model were, where the actual values are known by now. Scores: mae,
rmse, bias (forecast less actual value), and mase, the mae over that of repeating the last season:
below 1 the model is better. Intervals have their coverage, which should be near their level.
Example, the worst series of the last days:
{"model": "load", "by": "series", "since": "2026-03-01", "limit": 5}"""
_LIMIT = {
    **fields(
        AccuracyQuery,
        "limit",
        limit="Most rows: of series those with the largest mase, of days the newest.",
    )["limit"],
    "default": _ROWS,
}


async def _run(caller: Caller, given: Fields) -> Fields:
    name, version = model_and_version(given)
    query = {each: given[each] for each in _QUERY if each in given}
    if version:
        query["version"] = version
    query["limit"] = given.get("limit", _ROWS)
    answer = await caller.get(f"/models/{name}/accuracy", query)
    rows = [_row(row) for row in answer["rows"]]
    found: Fields = {"model": answer["model"], "by": answer["by"], "rows": rows}
    if answer["left_out"]:
        found["left_out"] = answer["left_out"]
    return found


def _row(row: Fields) -> Fields:
    found = {name: row[name] for name in _GROUPS if row.get(name) is not None}
    found |= {name: row[name] for name in _SCORES}
    if row["intervals"]:
        found["intervals"] = row["intervals"]
    return found


def _text(found: Fields) -> str:
    if not found["rows"]:
        return f"No actual values are known of forecasts of {found['model']}."
    lines = [f"Scores of {found['model']}.", *table([_flat(row) for row in found["rows"]])]
    if "left_out" in found:
        lines.append(f"{found['left_out']} more rows were left out (limit).")
    return "\n".join(lines)


def _flat(row: Fields) -> dict[str, Any]:
    flat = {name: value for name, value in row.items() if name != "intervals"}
    for level, interval in row.get("intervals", {}).items():
        flat[f"coverage of {level}"] = interval["coverage"]
    return flat


ACCURACY = Tool(
    "accuracy",
    "Accuracy of past forecasts",
    _DESCRIPTION,
    arguments(
        {
            "model": {"type": "string", "description": "A name or name@version."},
            **fields(AccuracyQuery, *_QUERY),
            "limit": _LIMIT,
        },
        "model",
    ),
    _run,
    _text,
    "ask for fewer rows (limit)",
)
