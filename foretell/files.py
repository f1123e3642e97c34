"""Files that commands write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from foretell.errors import RefusedError


def check_writable(path: Path, kinds: Sequence[str] = (), *, overwrite: bool = True) -> None:
    """Check, before a long computation, that a file can be written.

    Args:
        path: The file.
        kinds: Allowed suffixes; any if empty.
        overwrite: Whether the file may exist.

    Raises:
        RefusedError: the suffix is not allowed, the folder does not exist, or the file does.
    """
    if kinds and path.suffix not in kinds:
        raise RefusedError(f"{path}: expected a name that ends with {', '.join(kinds)}")
    if not path.parent.is_dir():
        raise RefusedError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not overwrite:
        raise RefusedError(f"{path}: exists already; --overwrite replaces it")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A hidden file to write to; it replaces `path` at the end, or is removed after an error."""
    hidden = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield hidden
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
