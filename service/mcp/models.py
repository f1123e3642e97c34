"""The tool that lists models, with the facts from which an agent makes a forecast."""

from __future__ import annotations

from typing import Any

from foretell.service.mcp.caller import Caller
from foretell.service.mcp.results import Fields, Result, limited
from foretell.service.mcp.schemas import arguments
from foretell.service.mcp.tools import Tool, model_and_version

# Models that are described; of others only the names are listed, up to a number.
_DESCRIBED, _NAMED = 20, 1000
# Channels of a model among others.
_CHANNELS = 20
_FACTS = (
    *("name", "version", "channels", "targets", "context", "horizon", "max_horizon", "frequency"),
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


async def _run(caller: Caller, given: Fields) -> Result:
    if "model" in given:
        name, version = model_and_version(given)
        card = await caller.get(f"/models/{name}@{version}" if version else f"/models/{name}")
        found: Fields = {"models": [_facts(card)]}
    else:
        cards = await caller.get("/models")
        found = {"models": [_facts(card, _CHANNELS) for card in cards[:_DESCRIBED]]}
        if others := [card["name"] for card in cards[_DESCRIBED:]]:
            found["other_models"] = others[:_NAMED]
        if len(others) > _NAMED:
            found["left_out"] = len(others) - _NAMED
    return limited(found, _text, "name a model")


def _facts(card: Fields, most: int | None = None) -> Fields:
    """The facts of a card; of many channels the first ones and their number."""
    facts: dict[str, Any] = {name: card[name] for name in _FACTS if card[name] is not None}
    for name in ("channels", "targets"):
        if most is not None and len(card[name]) > most:
            facts[name] = card[name][:most]
            facts[f"number_of_{name}"] = len(card[name])
    given = {kind: named for kind, named in card["covariates"].items() if named}
    facts["covariates"] = given
    return facts


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
    return f"{card['name']} ({card['type']}{categories})"


LIST_MODELS = Tool(
    "list_models",
    "List models",
    _DESCRIPTION,
    arguments(
        {
            "model": {
                "type": "string",
                "description": "A name or name@version, for one model with all its channels.",
            }
        }
    ),
    _run,
)
