"""The tool that lists models, with the facts from which an agent makes a forecast."""

from __future__ import annotations

from typing import Any

import orjson

from foretell.service.mcp.caller import Caller
from foretell.service.mcp.exchange import AnswerTooLargeError
from foretell.service.mcp.results import Fields
from foretell.service.mcp.schemas import arguments
from foretell.service.mcp.tools import Tool, model_and_version

# Models that are described; of others only the names are listed, up to a number.
_DESCRIBED, _DESCRIBED_BYTES, _NAMED = 20, 256 * 1024, 1000
# Channels and categories of a model among others, and of one alone.
_FEW, _MANY = 20, 1000
_FACTS = (
    *("name", "version", "digest", "channels", "targets"),
    *("context", "horizon", "max_horizon", "frequency"),
    *("needs_timestamps", "reads_gaps", "quantile_levels", "covariates", "verdict"),
)

_DESCRIPTION = f"""\
List the forecasting models of this server. Call it first: it has what the other tools need.
For each model:
- channels: columns of a history, in order; targets: the channels that it forecasts
- context: fewest rows of a history; horizon: steps of a forecast; max_horizon: most steps
- frequency: distance of rows, as pandas writes it (h is an hour, D a day, MS a month)
- needs_timestamps: whether inputs need start_timestamp or timestamps
- covariates: further values to send by name, if there are any
- quantile_levels: lowest and highest quantile, if it has quantiles
- verdict: its test error next to simple forecasts
Up to {_DESCRIBED} models are described, of others only the names: name one for its description."""


async def _run(caller: Caller, given: Fields) -> Fields:
    if "model" in given:
        name, version = model_and_version(given)
        card = await caller.get(f"/models/{name}@{version}" if version else f"/models/{name}")
        return {"models": [_facts(card, _MANY)]}
    every, names = await _described(caller)
    described, size = list[Fields](), 0
    for facts in every:
        size += len(orjson.dumps(facts))
        if size > _DESCRIBED_BYTES and described:
            break
        described.append(facts)
    found: Fields = {"models": described}
    if others := names[len(described) :]:
        found["other_models"] = others[:_NAMED]
    if len(others) > _NAMED:
        found["left_out"] = len(others) - _NAMED
    return found


async def _described(caller: Caller) -> tuple[list[Fields], list[str]]:
    """The facts of the first models, and the names of all."""
    try:
        cards = await caller.get("/models")
        facts = [_facts(card, _FEW) for card in cards[:_DESCRIBED]]
        return facts, [card["name"] for card in cards]
    except AnswerTooLargeError:
        # Thousands of models, or thousands of channels.
        entries = await caller.post("/v2/repository/index", {"ready": True})
    names = [*dict.fromkeys(entry["name"] for entry in entries)]
    facts, share = [], caller.share
    for name in names[:_DESCRIBED]:
        before = share.reserved
        facts.append(_facts(await caller.get(f"/models/{name}"), _FEW))
        # The card itself is no longer held.
        share.reserve(before - share.reserved)
    return facts, names


def _facts(card: Fields, most: int) -> Fields:
    """The facts of a card; of many channels or categories the first ones and their number."""
    facts: dict[str, Any] = {name: card[name] for name in _FACTS if card[name] is not None}
    for name in ("channels", "targets"):
        facts |= _first(card, name, most)
    facts["covariates"] = {
        kind: [{**each, **_first(each, "categories", most)} for each in named]
        for kind, named in card["covariates"].items()
        if named
    }
    return facts


def _first(fields: Fields, name: str, most: int) -> Fields:
    """A list of some fields, at most so long, with its length if it is longer."""
    values = fields[name]
    if not values or len(values) <= most:
        return {name: values}
    return {name: values[:most], f"number_of_{name}": len(values)}


def _text(found: Fields) -> str:
    lines = [_line(facts) for facts in found["models"]]
    if "other_models" in found:
        lines.append(f"Also: {', '.join(found['other_models'])}")
    if "left_out" in found:
        lines.append(f"and {found['left_out']} more")
    return "\n".join(lines) or "The server has no models."


def _line(facts: Fields) -> str:
    needs = [
        f"{facts['name']}@{facts['version']}: reads {facts['context']} rows or more of "
        f"{_named(facts, 'channels')}, frequency {facts['frequency']}",
        f"forecasts {facts['horizon']} steps (at most {facts['max_horizon']}) of "
        f"{_named(facts, 'targets')}",
    ]
    if facts["needs_timestamps"]:
        needs.append("needs start_timestamp or timestamps")
    if levels := facts.get("quantile_levels"):
        needs.append(f"quantiles {levels[0]} to {levels[1]}")
    for kind, named in facts["covariates"].items():
        needs.append(f"{kind} covariates: {', '.join(map(_covariate, named))}")
    if facts.get("verdict"):
        needs.append(facts["verdict"])
    return "; ".join(needs)


def _named(facts: Fields, kind: str) -> str:
    names = ", ".join(facts[kind])
    number = facts.get(f"number_of_{kind}")
    return f"{number} channels ({names}, …)" if number else names


def _covariate(card: Fields) -> str:
    categories = f": {', '.join(card['categories'])}" if card["categories"] else ""
    categories += ", …" if "number_of_categories" in card else ""
    return f"{card['name']} ({card['type']}{categories})"


LIST_MODELS = Tool(
    "list_models",
    "List models",
    _DESCRIPTION,
    arguments(
        {
            "model": {
                "type": "string",
                "description": "A name or name@version, for one model with more of its channels: "
                f"up to {_MANY:,}.",
            }
        }
    ),
    _run,
    _text,
    "name one model",
)
