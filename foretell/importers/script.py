"""Arguments from a file: a shell script of the published code, YAML or JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from foretell.importers.arguments import Arguments
from foretell.importers.errors import ImporterError
from foretell.importers.given import read_arguments
from foretell.importers.registry import ALIASES, OPTIONS
from foretell.importers.shell import read_commands, understood


class Run(NamedTuple):
    """A training that a file describes.

    Attributes:
        arguments: What it says.
        unread: Options that it gives a value which only a run would tell, with what it says.
        complete: Whether all other options had the code's defaults: so in a command line.
    """

    arguments: Arguments
    unread: Mapping[str, str]
    complete: bool


def read_script(text: str) -> list[Run]:
    """Read arguments from a file, or from the arguments themselves (`--seq_len 96 …`).

    Returns:
        A run for each command, and for each value of the loops around it.

    Raises:
        ImporterError: the file is missing, is none of these formats or has no known argument.
    """
    if text.lstrip().startswith("--"):
        return _shell_runs(text, "--config")
    path = Path(text)
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ImporterError(f"--config {path}: {reason}") from None
    if path.suffix not in (".yaml", ".yml", ".json"):
        return _shell_runs(content, path.name)
    try:
        leaves = _flatten(yaml.safe_load(content))  # JSON is YAML
    except (yaml.YAMLError, RecursionError) as error:
        raise ImporterError(f"--config {path}: {' '.join(str(error).split())[:200]}") from None
    run = _run(leaves, path.name, complete=False)
    if run is None:
        raise ImporterError(f"--config {path}: no argument such as seq_len or n_heads in it")
    return [run]


def _run(given: Mapping[str, Any], provenance: str, *, complete: bool) -> Run | None:
    """What the values of options say; None if none of them matters."""
    named = {ALIASES.get(name, name): value for name, value in given.items()}
    unread = {
        name: f"{provenance} has {str(value) or 'no value'}"
        for name, value in named.items()
        if name in OPTIONS and not understood(str(value))
    }
    others = {name: value for name, value in named.items() if name not in unread}
    arguments = read_arguments(others, provenance)
    return Run(arguments, unread, complete) if arguments or unread else None


def _flatten(loaded: object) -> dict[str, Any]:
    """Leaves of nested mappings by their last name."""
    leaves: dict[str, Any] = {}
    if isinstance(loaded, dict):
        for name, value in loaded.items():
            leaves |= _flatten(value) if isinstance(value, dict) else {str(name): value}
    return leaves


def _shell_runs(content: str, provenance: str) -> list[Run]:
    try:
        commands = list(read_commands(content))
    except ValueError as error:
        raise ImporterError(f"{provenance}: {error}") from None
    runs = [_command_run(command, provenance) for command in commands]
    if not any(runs):
        raise ImporterError(f"{provenance}: no command with arguments such as --seq_len 96 in it")
    return [run for run in runs if run is not None]


def _command_run(words: list[str], provenance: str) -> Run | None:
    options: dict[str, Any] = {}
    complete, started, named = True, False, False
    for word, following in itertools.pairwise([*words, ""]):
        if not word.startswith("--"):
            # A variable that is no value of an option may hold further options.
            complete &= not started or named or understood(word)
            started, named = started or word.endswith(".py"), False
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = "" if following.startswith("--") else following
        started, named = True, not equals
        if not value.startswith("{"):
            options[name] = value
            continue
        try:  # some take all of a model's arguments as JSON
            options |= _flatten(json.loads(value))
        except (json.JSONDecodeError, RecursionError) as error:
            if understood(value):
                raise ImporterError(f"{provenance}: {value[:60]}: {error}") from None
            complete = False
    return _run(options, provenance, complete=complete)
