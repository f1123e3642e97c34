"""Tests that could find a fault in a file: those whose imports reach it, the nearest first."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Packages at the top of the repository that `foretell` links to.
_LINKED = ("bundle", "models", "export", "service")


class Selection:
    """The test files of a checkout, and what each of them imports.

    Args:
        root: The checkout's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tests = sorted(root.glob("tests/**/test_*.py"))
        self._imports = cache(self._read_imports)

    def could_see(self, path: str) -> list[list[str]]:
        """Test files in the order in which they are to run, in groups.

        Args:
            path: A file of the product, from the root.

        Returns:
            Files with the module's name; then those that import it, themselves or by way of one
            other file; then all others of its package that reach it.
        """
        target = self._root / path
        package, *rest = path.split("/")
        if package == "foretell" and (self._root / "tests" / rest[0]).is_dir():
            # Packages within `foretell` have tests of their own.
            package = rest[0]
        named, near, far = [], [], []
        for test in self._tests:
            place = str(test.relative_to(self._root))
            in_package = place.startswith(f"tests/{package}/")
            if in_package and test.stem == f"test_{target.stem}":
                named.append(place)
                continue
            distance = self._distance(test, target)
            if distance is None:
                continue
            if distance <= 2:
                near.append((not in_package, distance, place))
            elif in_package:
                far.append((distance, place))
        groups = [
            named,
            [place for *_, place in sorted(near)],
            [place for *_, place in sorted(far)],
        ]
        return [group for group in groups if group]

    def _distance(self, test: Path, target: Path) -> int | None:
        seen = {test}
        waiting = deque([(test, 0)])
        while waiting:
            path, distance = waiting.popleft()
            if path == target:
                return distance
            for found in self._imports(path) - seen:
                seen.add(found)
                waiting.append((found, distance + 1))
        return None

    def _read_imports(self, path: Path) -> frozenset[Path]:
        files = {file for name in _names(path) for file in self._files(name)}
        # Fixtures reach a test without an import.
        if path.name.startswith("test_"):
            files |= {folder / "conftest.py" for folder in path.parents if folder != self._root}
        return frozenset(file for file in files if file.exists())

    def _files(self, name: str) -> Iterator[Path]:
        parts = name.split(".")
        if parts[0] == "foretell" and len(parts) > 1 and parts[1] in _LINKED:
            parts = parts[1:]
        elif parts[0] not in ("foretell", "tests", "bench"):
            return
        base = self._root.joinpath(*parts)
        yield base.with_suffix(".py")
        yield base / "__init__.py"


def _names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            # `from package import module`
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            # Modules that are imported by name, and commands that are loaded when they are called.
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("foretell.")
            and " " not in node.value
        ):
            yield node.value.partition(":")[0]
