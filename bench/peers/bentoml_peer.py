from __future__ import annotations

import os
import sys
from pathlib import Path

import bentoml
import numpy as np
from session import open_session


@bentoml.service(workers=2, traffic={"timeout": 60, "max_concurrency": 256})
class Forecaster:
    def __init__(self) -> None:
        self.session = open_session(os.environ["GRAPH"])

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def forecast(self, series: np.ndarray) -> np.ndarray:
        return self.session.run(None, {"history": series.astype(np.float32)})[0]


if __name__ == "__main__":
    os.environ["GRAPH"] = sys.argv[1]
    os.environ["BENTOML_DO_NOT_TRACK"] = "true"
    service = f"{Path(__file__).stem}:Forecaster"
    command = [sys.executable, "-m", "bentoml", "serve", service, "--host", "127.0.0.1"]
    command += ["--port", sys.argv[2], "--working-dir", str(Path(__file__).parent)]
    os.execv(sys.executable, command)
