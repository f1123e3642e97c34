"""Writes its settings to the folder that it runs in."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from session import open_session


class Forecaster(MLModel):
    async def load(self) -> bool:
        self.session = open_session(self.settings.parameters.uri)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        history = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        forecast = self.session.run(None, {"history": history})[0]
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("forecast", forecast)]
        )


if __name__ == "__main__":
    graph, port = sys.argv[1], int(sys.argv[2])
    for script in ("mlserver_peer.py", "session.py"):
        shutil.copy(Path(__file__).with_name(script), script)
    server = {
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": port + 1,
        "metrics_port": port + 2,
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
    Path("settings.json").write_text(json.dumps(server))
    Path("model-settings.json").write_text(json.dumps(model))
    os.execv(sys.executable, [sys.executable, "-m", "mlserver.cli.main", "start", "."])
