"""A graph on one or several GPUs, each with a worker of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretell.service.arrays import Arrays
from foretell.service.cuda.gpu import Gpu
from foretell.service.session import input_shapes, output_names


class CudaSession:
    """See `foretell.service.session.Session`; a worker runs the session of its own GPU.

    Args:
        gpus: One for every worker.
        graph: Where it came from.
        provider: The execution provider.

    Attributes:
        captures: Whether all its runs replay CUDA graphs.
    """

    def __init__(self, gpus: Sequence[Gpu], graph: Path, *, provider: str) -> None:
        self._gpus = gpus
        self.graph = graph
        self.provider = provider
        self.inputs = input_shapes(gpus[0].session)
        self.outputs = output_names(gpus[0].session)

    @property
    def captures(self) -> bool:
        """See above."""
        return all(gpu.captures for gpu in self._gpus)

    def warm(self, worker: int) -> None:
        """See `Session.warm`; captures the CUDA graphs of the worker's GPU."""
        self._gpus[worker].warm()

    def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
        """See `Session.run`; to be called on the worker's thread."""
        return self._gpus[worker].run(feeds)

    def stop(self) -> None:
        """See `Session.stop`."""
        for gpu in self._gpus:
            gpu.stop()

    def close(self) -> None:
        """See `Session.close`."""
        for gpu in self._gpus:
            gpu.close()
