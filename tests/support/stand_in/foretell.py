"""Run on the stand-in: `python -m tests.support.stand_in.foretell …`, as `foretell serve …`."""

from __future__ import annotations

from foretell.__main__ import main
from tests.support.stand_in.numbers import ignore

# Worker processes of a server import this module too.
ignore()

if __name__ == "__main__":
    main()
