"""Triton, through PyTriton."""

from __future__ import annotations

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from session import open_session


class Forecaster:
    def __init__(self, graph: str) -> None:
        self.session = open_session(graph)

    @batch
    def forecast(self, history: np.ndarray) -> dict[str, np.ndarray]:
        return {"forecast": self.session.run(None, {"history": history})[0]}


if __name__ == "__main__":
    path, port = sys.argv[1], int(sys.argv[2])
    config = TritonConfig(
        http_address="127.0.0.1", http_port=port, allow_grpc=False, allow_metrics=False
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="patchtst",
            infer_func=[Forecaster(path).forecast, Forecaster(path).forecast],
            inputs=[Tensor(name="history", dtype=np.float32, shape=(336, 7))],
            outputs=[Tensor(name="forecast", dtype=np.float32, shape=(96, 7))],
            config=ModelConfig(
                max_batch_size=32, batcher=DynamicBatcher(max_queue_delay_microseconds=2000)
            ),
        )
        triton.serve()
