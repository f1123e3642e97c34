"""Arguments from a file: YAML, JSON, a script of published code, or the command itself.

In a script, only commands are read, and variables that it assigns once before their use. Loops,
conditions and functions are not evaluated; options that depend on them must be given.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from foretell.importers.arguments import ALIASES, OPTIONS, Arguments, read_arguments
from foretell.importers.errors import ImporterError

_COMMENT = re.compile(r"""(?P<kept>\\.|'[^']*'|"(?:\\.|[^"\\])*")|(?:^|(?<=\s))#.*""", re.MULTILINE)
_CONTINUED = re.compile(r"\\(?:\r?\n|\Z)")
_ASSIGNED = r"([A-Za-z_]\w*)=(\"[^\"$`]*\"|'[^']*'|[^\s\"'$`();&|]+)"
_ASSIGNMENTS = re.compile(
    rf"^[ \t]*(?:(?:export[ \t]+)?{_ASSIGNED}[ \t]*;?[ \t]*)+\r?$", re.MULTILINE
)
_BLOCKS = re.compile(
    r"(?:^|[;&|]|\b(?:then|do|else)\b)[ \t]*(if|case|while|until|for|select|fi|esac|done|\{|\}|"
    r"(?:function[ \t]+\w+|\w+[ \t]*\(\))\s*\{?)(?=[\s;&|]|\Z)",
    re.MULTILINE,
)
_SOURCED = re.compile(r"^\s*(?:source|\.|eval)\s", re.MULTILINE)


class Run(NamedTuple):
    """A training that a file describes.

    Attributes:
        arguments: Arguments in the file.
        unread: Options with a value that only a shell could compute, each with its text.
        complete: Whether all other options had the code's defaults, as for a command line.
    """

    arguments: Arguments
    unread: Mapping[str, str]
    complete: bool


def read_script(text: str) -> list[Run]:
    """Read arguments from a file, or from a command (`python run.py --seq_len 96 …`).

    Returns:
        A run for each command.

    Raises:
        ImporterError: the file is missing, has another format or has no known argument.
    """
    if " --" in f" {text}":
        return _read_commands(text, "--config")
    path = Path(text)
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ImporterError(f"--config {path}: {reason}") from None
    if path.suffix not in (".yaml", ".yml", ".json"):
        return _read_commands(content, path.name)
    try:
        leaves = _flatten(yaml.safe_load(content))  # JSON is YAML
    except (yaml.YAMLError, RecursionError) as error:
        raise ImporterError(f"--config {path}: {' '.join(str(error).split())[:200]}") from None
    run = _run(leaves, path.name, complete=False)
    if not run.arguments and not run.unread:
        raise ImporterError(f"--config {path}: no argument such as seq_len or n_heads in it")
    return [run]


def _run(given: Mapping[str, Any], provenance: str, *, complete: bool) -> Run:
    named = {ALIASES.get(name, name): value for name, value in given.items()}
    unread = {
        name: f"{provenance} has {value or 'no value'}"
        for name, value in named.items()
        if name in OPTIONS and not _is_plain(str(value))
    }
    plain = {name: value for name, value in named.items() if name not in unread}
    return Run(read_arguments(plain, provenance), unread, complete)


def _flatten(loaded: object) -> dict[str, Any]:
    """Leaves of nested mappings by their last name."""
    leaves: dict[str, Any] = {}
    if isinstance(loaded, dict):
        for name, value in loaded.items():
            leaves |= _flatten(value) if isinstance(value, dict) else {str(name): value}
    return leaves


def _is_plain(text: str) -> bool:
    """Whether a value is not empty and has nothing that a shell would replace."""
    return bool(text) and not re.search(r"[$`]", text)


def _read_commands(script: str, provenance: str) -> list[Run]:
    try:
        commands = list(_split(script))
    except ValueError:
        raise ImporterError(
            f"{provenance}: a quotation does not end; give the command that trained it alone, as "
            "--config 'python run.py --seq_len 96 …'"
        ) from None
    runs = [_read_command(words, provenance) for words in commands]
    runs = [run for run in runs if run.arguments or run.unread]
    if not runs:
        raise ImporterError(f"{provenance}: no command with arguments such as --seq_len 96 in it")
    return runs


def _split(script: str) -> Iterator[list[str]]:
    """The words of each command."""
    text = _CONTINUED.sub(" ", _COMMENT.sub(lambda found: found["kept"] or "", script))
    for name, value in _variables(text).items():
        text = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value.replace("\\", r"\\"), text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if not word or word.strip(";|&<>\n"):
            words.append(word)
        else:
            yield words
            words = []


def _variables(script: str) -> dict[str, str]:
    """Variables that are assigned exactly once, and so have one value."""
    if _SOURCED.search(script):
        return {}
    found = {
        name: value
        for line in _ASSIGNMENTS.finditer(script)
        for name, value in re.findall(_ASSIGNED, line[0])
        if not _is_conditional(script, line.start())
        and not re.search(rf"\$\{{?{name}\b", script[: line.start()])
    }
    return {
        name: value.strip("\"'")
        for name, value in found.items()
        if len(re.findall(rf"(?<![\w$\-{{./]){name}(?!\w)", script)) == 1
    }


def _is_conditional(script: str, place: int) -> bool:
    """Whether the code at a place may not run, such as inside a condition or a function."""
    blocks: list[str] = []
    for found in _BLOCKS.finditer(script, 0, place):
        if found[1] in {"fi", "esac", "done", "}"}:
            del blocks[-1:]
        else:
            blocks.append(found[1])
    return not {"for", "select", "{"}.issuperset(blocks)


def _read_command(words: list[str], provenance: str) -> Run:
    options: dict[str, Any] = {}
    name, complete = "", True
    for word in itertools.dropwhile(lambda word: not re.search(r"^--|\.py$", word), words):
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            options[name] = value
            name = "" if equals else name
        elif name:
            options[name], name = word, ""
        else:
            # A variable that is not the value of an option may hold further options.
            complete &= _is_plain(word)
    for value in [value for value in options.values() if value.startswith("{")]:
        try:  # some commands take the model's arguments as JSON
            options |= _flatten(json.loads(value))
        except (json.JSONDecodeError, RecursionError) as error:
            if not _is_plain(value):
                complete = False
                continue
            raise ImporterError(f"{provenance}: {value[:60]}: {error}") from None
    return _run(options, provenance, complete=complete)
