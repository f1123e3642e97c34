"""BentoML: `bentoml_peer.py GRAPH PORT`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bentoml
import numpy as np
import onnxruntime


@bentoml.service(workers=2, traffic={"timeout": 60, "max_concurrency": 256})
class Forecaster:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.environ["GRAPH"], options, providers=["CPUExecutionProvider"]
        )

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def forecast(self, series: np.ndarray) -> np.ndarray:
        return self.session.run(None, {"history": series.astype(np.float32)})[0]


if __name__ == "__main__":
    graph, port = sys.argv[1:]
    os.environ["GRAPH"] = graph
    os.environ["BENTOML_DO_NOT_TRACK"] = "true"
    service = f"{Path(__file__).stem}:Forecaster"
    command = [sys.executable, "-m", "bentoml", "serve", service, "--host", "127.0.0.1"]
    command += ["--port", port, "--working-dir", str(Path(__file__).parent)]
    os.execv(sys.executable, command)
