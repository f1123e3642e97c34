"""Run on the stand-in: `python -m tests.support.stand_in.foretell …`, as `foretell serve …`."""

from __future__ import annotations

from foretell.__main__ import main
from tests.support.stand_in.numbers import ignore

# Processes of a server import it as well.
ignore()

if __name__ == "__main__":
    main()
