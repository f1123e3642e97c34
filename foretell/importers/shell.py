"""The commands of a shell script, with their variables replaced as far as the text tells them.

A variable keeps its `$` where only a run would tell its value: what conditions, functions,
arithmetic and other programs decide, and the script's own arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_CONTINUED = r"\\(?:\r?\n|\Z)"
_DOUBLE = r'"(?:\\.|[^"\\])*"'
_TOKEN = re.compile(
    rf"(?P<blank>[ \t\r]+|{_CONTINUED}|\#[^\n]*)"
    r"|(?P<function>[\w:-]+[ \t]*\(\))"
    r"|(?P<operator>\n|[;|&<>()]+)"
    r"|(?P<word>(?:\w+=\([^)]*\)|\$\(\([^)]*\)\)|\$\([^)]*\)|\$\{[^}]*\}|`[^`]*`|'[^']*'|"
    rf"{_DOUBLE}|(?!{_CONTINUED})\\.|[^\s;|&<>()'\"`\\])+)",
    re.DOTALL,
)
# A here-document is input of its command, which nothing of it assigns or runs.
_DOCUMENT = re.compile(
    r"(?<!<)<<-?[ \t]*(['\"\\]?)(\w+)\1?([^\n]*\n).*?^\t*\2$", re.DOTALL | re.MULTILINE
)
_PIECE = re.compile(rf"'([^']*)'|({_DOUBLE})|\\(.)|\$(?:\{{(\w+)\}}|(\w+))", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(?!\()(.*)", re.DOTALL)
_NAME = re.compile(r"(?<![\w$])(?<!\$\{)[A-Za-z_]\w*")
_UNREAD = re.compile(r"[$`]|\{[^\"']*(?:,|\.\.)[^\"']*\}")
_ENDS = {"for": "done", "select": "done", "while": "done", "until": "done", "if": "fi"}
_ENDS |= {"case": "esac", "{": "}", "(": ")"}
_KEYWORDS = {
    "if",
    "then",
    "elif",
    "else",
    "while",
    "until",
    "do",
    "{",
    "}",
    "!",
    "function",
    "export",
}
_CODE = {"source", ".", "eval"}
_CHANGE = {"declare", "typeset", "local", "readonly", "read", "let", "unset", "printf", "mapfile"}


class _Statement(NamedTuple):
    words: list[str]
    conditional: bool = False


def understood(text: str) -> bool:
    """Whether a value is there and has nothing left in it that a shell would replace."""
    return bool(text) and not _UNREAD.search(text)


def read_commands(script: str) -> Iterator[list[str]]:
    """The words of each command, once for each value of the loops around it.

    Raises:
        ValueError: a quotation does not end.
    """
    statements = list(_statements(_DOCUMENT.sub(r"\3", script)))
    return _run(statements, {}, _unsure(statements))


def _statements(script: str) -> Iterator[_Statement]:
    words: list[str] = []
    conditional = redirected = False
    at = 0
    while at < len(script):
        token = _TOKEN.match(script, at)
        if token is None:
            line = script.count("\n", 0, at) + 1
            raise ValueError(f"line {line}: a quotation does not end")
        at, text, kind = token.end(), token[0], token.lastgroup
        if kind == "operator" and ("<" in text or ">" in text):
            redirected = True
        elif kind == "word" and redirected:
            redirected = False
        elif kind == "word" and text != "{" and (words or text not in _KEYWORDS):
            words.append(text)
        elif kind != "blank":
            if words:
                yield _Statement(words, conditional)
            words = []
            if kind == "operator":
                conditional = "&&" in text or "|" in text
                yield from (_Statement([bracket]) for bracket in text if bracket in "()")
            else:
                yield _Statement(["function" if kind == "function" else text])
    if words:
        yield _Statement(words, conditional)


def _unsure(statements: list[_Statement]) -> set[str]:
    """Names that more than plain assignments and loops may change."""
    names: set[str] = set()
    blocks: list[str] = []
    for words, conditional in statements:
        first = words[0]
        if first in _ENDS:
            blocks.append(first)
        elif blocks and first == _ENDS[blocks[-1]]:
            blocks.pop()
        if conditional or set(blocks) - {"for"} or first in _CHANGE or not _plain(words):
            # A name after `$` is read, and what begins with a dash is an option.
            names.update(name for word in words if word[0] != "-" for name in _NAME.findall(word))
    return names


def _plain(words: list[str]) -> bool:
    """Whether a statement does nothing to variables, or only assigns them."""
    return all(map(_ASSIGNMENT.match, words)) or not re.match(r"\w+(?:\[.*\])?\+?=", words[-1])


def _run(
    statements: list[_Statement], variables: dict[str, str], unsure: set[str]
) -> Iterator[list[str]]:
    at = 0
    while at < len(statements):
        words, at = statements[at].words, at + 1
        assigned = [_ASSIGNMENT.fullmatch(word) for word in words]
        if words[0] in {"for", "function"}:
            body = statements[at : (at := _end(statements, at, words[0]))]
            values = [part for word in words[3:] for part in _expand(word, variables)]
            if values and words[1] not in unsure and all(map(understood, values)):
                for value in values:
                    variables[words[1]] = value
                    yield from _run(body, variables, unsure)
            else:
                # At another call, or in another round, any of them may be another.
                yield from _run(body, {}, unsure)
        elif all(assigned):
            for name, text in (found.groups() for found in assigned if found is not None):
                variables[name] = f"${name}" if name in unsure else _replace(text, variables)
        elif words[0] in _CODE:
            variables.clear()
        else:
            command = [part for word in words for part in _expand(word, variables)]
            if any(word.startswith("--") for word in command):
                yield command


def _end(statements: list[_Statement], at: int, opener: str) -> int:
    """Where the block ends that was opened before."""
    closer, depth = _ENDS.get(opener, "}"), int(opener != "function")
    for i in range(at, len(statements)):
        first = statements[i].words[0]
        depth += (_ENDS.get(first) == closer) - (first == closer)
        if first == closer and depth == 0:
            return i
    return len(statements)


def _expand(word: str, variables: dict[str, str]) -> list[str]:
    """The word as the command gets it; without quotes it falls apart at spaces."""
    text = _replace(word, variables)
    return [text] if "'" in word or '"' in word or _UNREAD.search(text) else text.split()


def _replace(word: str, variables: dict[str, str]) -> str:
    def replaced(piece: re.Match[str]) -> str:
        literal, quoted, escaped, braced, plain = piece.groups()
        if quoted is not None:
            # Single quotes mean nothing within double ones.
            return _replace(quoted[1:-1].replace("'", "\\'"), variables)
        if literal is not None or escaped is not None:
            return literal or escaped or ""
        return variables.get(braced or plain, piece[0])

    return _PIECE.sub(replaced, word)
