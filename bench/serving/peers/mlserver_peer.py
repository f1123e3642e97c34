"""MLServer: `mlserver_peer.py GRAPH PORT` writes its settings to the folder it runs in."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Forecaster(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        history = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        forecast = self.session.run(None, {"history": history})[0]
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("forecast", forecast)]
        )


def main() -> None:
    graph, port = sys.argv[1:]
    folder = Path.cwd()
    shutil.copy(__file__, folder)
    server = {
        "host": "127.0.0.1",
        "http_port": int(port),
        "grpc_port": int(port) + 1,
        "metrics_port": int(port) + 2,
        "parallel_workers": 2,
        "load_models_at_startup": True,
        "use_structured_logging": False,
    }
    model = {
        "name": "patchtst",
        "implementation": "mlserver_peer.Forecaster",
        "max_batch_size": 32,
        "max_batch_time": 0.002,
        "parameters": {"uri": graph},
    }
    (folder / "settings.json").write_text(json.dumps(server))
    (folder / "model-settings.json").write_text(json.dumps(model))
    os.execv(sys.executable, [sys.executable, "-m", "mlserver.cli.main", "start", str(folder)])


if __name__ == "__main__":
    main()
