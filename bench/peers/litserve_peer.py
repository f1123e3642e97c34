from __future__ import annotations

import sys

import litserve
import numpy as np
from session import open_session


class Forecaster(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        self.session = open_session(sys.argv[1])

    def decode_request(self, request: dict[str, list[list[float]]]) -> np.ndarray:
        return np.array(request["series"], np.float32)

    def batch(self, inputs: list[np.ndarray]) -> np.ndarray:
        return np.stack(inputs)

    def predict(self, history: np.ndarray) -> np.ndarray:
        return self.session.run(None, {"history": history})[0]

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        return list(output)

    def encode_response(self, output: np.ndarray) -> dict[str, list[list[float]]]:
        return {"forecast": output.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(
        Forecaster(max_batch_size=32, batch_timeout=0.002, api_path="/forecast"),
        accelerator="cpu",
        workers_per_device=2,
        healthcheck_path="/ready",
    )
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False)
