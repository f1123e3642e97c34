"""Run on the stand-in: `python -m bench.stand_in.gpu_check …`, as `python -m bench.gpu …`."""

from __future__ import annotations

import sys

from bench.gpu import traffic
from bench.gpu.__main__ import main
from bench.stand_in.numbers import ignore

if __name__ == "__main__":
    ignore()
    traffic.SERVER = (sys.executable, "-m", "bench.stand_in.serve")
    main()
