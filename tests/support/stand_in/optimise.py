"""Run on the stand-in: `python -m tests.support.stand_in.optimise FROM TO …`.

Keeps of each graph what onnxruntime makes of it for CUDA, to be run where numbers are computed.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import onnxruntime

from foretell.service.cuda import gpus
from foretell.service.cuda.gpus import Gpus
from foretell.service.session import session_options


def main() -> None:
    """Write every optimised graph."""
    places = sys.argv[1:]
    devices = Gpus(onnxruntime)
    for source, target in zip(places[::2], places[1::2], strict=True):
        gpus.session_options = partial(_keeping, target)
        devices.open(Path(source), None).close()


def _keeping(target: str, module: object) -> SimpleNamespace:
    options: SimpleNamespace = session_options(module)
    options.optimized_model_filepath = target
    return options


if __name__ == "__main__":
    main()
