"""Sizes of forecasts, computed before the model runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretell.service.errors import InvalidInputError
from foretell.service.mcp.results import Fields

# Numbers in a result: a client may take only 25,000 tokens.
MOST_NUMBERS = 4000
# Numbers in the answer of the route, with the channels that are not chosen.
_MOST_READ = 100_000
# Characters of the names of series and scenarios, which the result repeats.
_MOST_CHARACTERS = 64 * 1024


def check_size(given: Fields, card: Fields, targets: Sequence[str] | None) -> None:
    """Refuse calls of `forecast` with too large a result; raises InvalidInputError.

    The count omits values of a wrong type, which the route refuses.
    """
    each, columns = _numbers(given, card), len(card["targets"])
    if (count := each * (columns if targets is None else len(targets))) > MOST_NUMBERS:
        raise InvalidInputError(
            f"the result has {count:,} numbers, and may have {MOST_NUMBERS:,}; ask for fewer "
            "inputs, steps, quantiles or targets"
        )
    if (count := each * columns) > _MOST_READ:
        raise InvalidInputError(
            f"the forecasts of all {columns:,} channels have {count:,} numbers, and may have "
            f"{_MOST_READ:,}; ask for fewer inputs, steps or quantiles"
        )
    if (length := sum(map(len, _texts(given)))) > _MOST_CHARACTERS:
        raise InvalidInputError(
            f"the names of series and scenarios have {length:,} characters, and may have "
            f"{_MOST_CHARACTERS:,}; shorten them",
            param="inputs",
        )


def _numbers(given: Fields, card: Fields) -> int:
    """Numbers in the forecasts of a channel."""
    horizon, quantiles = given.get("horizon"), given.get("quantiles")
    steps = horizon if type(horizon) is int and horizon > 0 else card["horizon"]
    levels = len(quantiles) if isinstance(quantiles, list) else 0
    count = 0
    for entry in _objects(given.get("inputs")):
        scenarios = entry.get("scenarios")
        futures = len(scenarios) if isinstance(scenarios, list) else 0
        # A scenario has its difference to the first one, too.
        count += 1 + levels + futures * (2 + levels)
    return int(min(steps, card["max_horizon"]) * count)


def _texts(given: Fields) -> Iterator[str]:
    for entry in _objects(given.get("inputs")):
        for named in (entry, *_objects(entry.get("scenarios"))):
            if isinstance(name := named.get("name"), str):
                yield name


def _objects(value: object) -> list[Fields]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
