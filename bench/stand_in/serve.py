"""Run on the stand-in: `python -m bench.stand_in.serve …`, as `foretell serve …`."""

from __future__ import annotations

from bench.stand_in.numbers import ignore
from foretell.__main__ import main

# Processes of a server import it as well.
ignore()

if __name__ == "__main__":
    main()
