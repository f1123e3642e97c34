"""The single faults that can be put into a source file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: (r"/", "*"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "*"),
}
_BOOLEAN: dict[type[ast.boolop], tuple[str, str]] = {
    ast.And: (r"\band\b", "or"),
    ast.Or: (r"\bor\b", "and"),
}
# Effects of these calls are only read by people.
_LOGGERS = re.compile(r"^_?(log|logger|warnings)\.")


@dataclass(frozen=True, order=True)
class Mutation:
    """One fault: the bytes from `start` to `end` of a file are replaced.

    Attributes:
        start: Offset of the first byte that is replaced.
        end: Offset behind the last one.
        text: The replacement.
        line: Number of the line where the fault begins, from 1.
        kind: The kind of the fault, such as `comparison` or `dropped raise`.
    """

    start: int
    end: int
    text: str
    line: int
    kind: str

    def apply(self, source: bytes) -> bytes:
        """The source with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(source: bytes) -> list[Mutation]:
    """All faults of a source file, in order of their places.

    Strings, annotations, decorators and logging stay as they are.
    """
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def visit_Compare(self, node: ast.Compare) -> None:
        before: ast.expr = node.left
        for operator, after in zip(node.ops, node.comparators, strict=True):
            self._operator(before, after, _COMPARISONS[type(operator)], "comparison")
            before = after
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = isinstance(node.left, ast.Constant | ast.JoinedStr) and not _is_number(node.left)
        if type(node.op) in _ARITHMETIC and not texts:
            self._operator(node.left, node.right, _ARITHMETIC[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for before, after in zip(node.values, node.values[1:], strict=False):
            self._operator(before, after, _BOOLEAN[type(node.op)], "and/or")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._start(node)
            self._add(start, self._start(node.operand), "", node.lineno, "dropped not")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value), "flipped constant")
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1), "off by one")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await) and not self._logs(node):
            self._replace(node, "pass", "dropped call")
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass", "dropped raise")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass", "dropped assignment")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass", "dropped continue")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue", "break to continue")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def _logs(self, node: ast.Expr) -> bool:
        return bool(_LOGGERS.match(ast.unparse(node.value)))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _replace(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        self._add(self._start(node), self._end(node), text, node.lineno, kind)

    def _operator(
        self, before: ast.expr, after: ast.expr, rule: tuple[str, str], kind: str
    ) -> None:
        start = self._end(before)
        between = self._source[start : self._start(after)].decode()
        found = re.search(rule[0], between)
        if found is not None:
            line = self._source.count(b"\n", 0, start + found.start()) + 1
            self._add(start + found.start(), start + found.end(), rule[1], line, kind)

    def _add(self, start: int, end: int, text: str, line: int, kind: str) -> None:
        self.found.append(Mutation(start, end, text, line, kind))


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def changed_lines(source: bytes, mutation: Mutation) -> Iterator[str]:
    """The first line that the fault changes, before and after."""
    for text in (source, mutation.apply(source)):
        yield text.decode().splitlines()[mutation.line - 1].strip()
