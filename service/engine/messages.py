"""Messages about the files of a repository."""

from __future__ import annotations

import re
from pathlib import Path


def without_folder(text: str, folder: Path) -> str:
    """A message with paths relative to the repository, whose place clients need not know."""
    paths = "|".join(re.escape(str(path)) for path in (folder.absolute(), folder))
    return re.sub(rf"(?<![\w./-])(?:{paths})/", "", text)
