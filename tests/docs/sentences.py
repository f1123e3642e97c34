"""All English that users and contributors read: documents, docstrings, comments, messages, help.

`python -m tests.docs.sentences --seed 0 --count 50` prints some of it, drawn by the seed.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tests.docs.pages import PAGES
from tests.support.process import ROOT

PRODUCT = ("bundle", "models", "export", "service", "foretell")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# The end of a sentence, before the next one.
_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"'])")
# An empty line, or the next argument.
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?= +[\w*`]+: )")
_SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields|Example|Examples):$", re.MULTILINE)


class Sentence(NamedTuple):
    """A sentence.

    Attributes:
        place: File and line where its paragraph begins.
        kind: `document`, `docstring`, `comment` or `message`.
        text: The sentence in one line.
    """

    place: str
    kind: str
    text: str


def sentences() -> Iterator[Sentence]:
    """Every sentence of the documents and of the product."""
    yield from of_documents()
    for package in PRODUCT:
        yield from of_folder(package)


def of_documents() -> Iterator[Sentence]:
    """Every sentence of the documents, except generated ones."""
    for page in PAGES:
        if "reference" not in page.parts:
            yield from _of_page(page)


def of_folder(name: str) -> Iterator[Sentence]:
    """Every sentence of the modules in a folder at the top of the repository."""
    for path in sorted((ROOT / name).rglob("*.py")):
        if not any(part.is_symlink() for part in path.parents):
            yield from _of_module(path)


def _of_page(page: Path) -> Iterator[Sentence]:
    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    text = _COMMENT.sub(blank, _FENCE.sub(blank, page.read_text()))
    line = 1
    for paragraph in re.split(r"(\n{2,}|\n(?=[|#*-] ?))", text):
        if paragraph.strip():
            # Without the addresses of links, and examples in italics.
            plain = re.sub(r"\]\([^)]*\)", "]", paragraph.strip("|# -\n"))
            plain = re.sub(r"(?<!\*)\*[^*]+\*(?!\*)", "…", plain)
            yield from _cut(f"{page.relative_to(ROOT)}:{line}", "document", plain)
        line += paragraph.count("\n")


def _of_module(path: Path) -> Iterator[Sentence]:
    source, name = path.read_text(), str(path.relative_to(ROOT))
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                for part in _PARAGRAPH.split(ast.get_docstring(node) or ""):
                    line = getattr(node, "lineno", 1)
                    yield from _cut(f"{name}:{line}", "docstring", _SECTION.sub("", part))
            case ast.Raise(exc=ast.Call(args=[first, *_])):
                yield from _cut(f"{name}:{node.lineno}", "message", _text(first))
            case ast.Call(func=ast.Attribute(attr="info" | "warning" | "error" | "echo")):
                if node.args:
                    yield from _cut(f"{name}:{node.lineno}", "message", _text(node.args[0]))
            case ast.keyword(arg="help" | "description" | "short_help"):
                yield from _cut(f"{name}:{node.lineno}", "message", _text(node.value))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield from _cut(f"{name}:{token.start[0]}", "comment", token.string.strip("# "))


def _text(node: ast.expr) -> str:
    """A text or an f-string, its values as `…`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return "".join(map(str, parts))
    return ""


def _cut(place: str, kind: str, text: str) -> Iterator[Sentence]:
    for sentence in _END.split(" ".join(text.split())):
        if len(sentence.split()) > 2:
            yield Sentence(place, kind, sentence)


def main() -> None:
    """Print some sentences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    arguments = parser.parse_args()
    for one in random.Random(arguments.seed).sample([*sentences()], arguments.count):
        click.echo(f"{one.place} ({one.kind}): {one.text}")


if __name__ == "__main__":
    main()
