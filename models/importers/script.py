"""Arguments from a file: a shell script of the published code, YAML or JSON."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from foretell.models.importers.arguments import Facts, read_arguments
from foretell.models.importers.errors import ImporterError

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(\w+)=(\S*)\s*")
_LOOP = re.compile(r"\s*for\s+(\w+)\s+in\s+([^;]+?)\s*(?:;\s*do\s*)?")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Script(NamedTuple):
    """Arguments of the runs a file describes.

    Attributes:
        runs: One a command, and one a value of the loops around it.
        complete: Whether what is not mentioned had the code's default: so in a command line.
    """

    runs: tuple[Facts, ...]
    complete: bool


def read_script(text: str) -> Script:
    """Read arguments from a file, or from the arguments themselves (`--seq_len 96 …`).

    Raises:
        ImporterError: the file is missing, is none of these formats or has no known argument.
    """
    if text.lstrip().startswith("--"):
        return Script(_shell_runs(text, "--config"), complete=True)
    path = Path(text)
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ImporterError(f"--config {path}: {reason}") from None
    if path.suffix in (".yaml", ".yml", ".json"):
        return Script((_mapping(path, content),), complete=False)
    return Script(_shell_runs(content, path.name), complete=True)


def _mapping(path: Path, content: str) -> Facts:
    try:
        loaded = yaml.safe_load(content)  # JSON is YAML
    except yaml.YAMLError as error:
        raise ImporterError(f"--config {path}: {' '.join(str(error).split())[:200]}") from None
    facts = read_arguments(_flatten(loaded), lambda _: path.name)
    if not facts:
        raise ImporterError(f"--config {path}: no argument such as seq_len or n_heads in it")
    return facts


def _flatten(loaded: object) -> dict[str, Any]:
    """Leaves of nested mappings by their last name."""
    leaves: dict[str, Any] = {}
    if isinstance(loaded, dict):
        for name, value in loaded.items():
            leaves |= _flatten(value) if isinstance(value, dict) else {str(name): value}
    return leaves


def _shell_runs(content: str, origin: str) -> tuple[Facts, ...]:
    variables: dict[str, list[str]] = {}
    runs: list[Facts] = []
    for line in content.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        if assignment := _ASSIGNMENT.fullmatch(line):
            variables[assignment[1]] = [assignment[2].strip("\"'")]
        elif loop := _LOOP.fullmatch(line):
            variables[loop[1]] = loop[2].split()
        elif not line.lstrip().startswith("#") and "--" in line:
            for command in _expand(line, variables):
                facts = read_arguments(_options(command, origin), lambda _: origin)
                if facts:
                    runs.append(facts)
    if not runs:
        raise ImporterError(f"{origin}: no command with arguments such as --seq_len 96 in it")
    return tuple(runs)


def _expand(line: str, variables: dict[str, list[str]]) -> list[str]:
    """The line with every combination of the values of its variables."""
    named = {brace or plain for brace, plain in _VARIABLE.findall(line)}
    used = sorted(named & set(variables))
    return [
        _substitute(line, dict(zip(used, values, strict=True)))
        for values in itertools.product(*(variables[name] for name in used))
    ]


def _substitute(line: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], ""), line)


def _options(command: str, origin: str) -> dict[str, Any]:
    try:
        words = shlex.split(command, comments=True)
    except ValueError as error:
        raise ImporterError(f"{origin}: {error} in: {command.strip()[:80]}") from None
    options: dict[str, Any] = {}
    for word, following in itertools.pairwise([*words, ""]):
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            continue
        value = value or following
        if value.startswith("{"):  # TFB gives its model's arguments as JSON
            options |= _flatten(_json(value, origin))
        elif value and not value.startswith(("--", "$")):
            options[name] = value
    return options


def _json(text: str, origin: str) -> object:
    try:
        loaded: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ImporterError(f"{origin}: {text[:60]}: {error}") from None
    return loaded
