"""A graph on one or several GPUs, each with a worker of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from service.arrays import Arrays
from service.cuda.gpu import Gpu
from service.errors import ModelFailedError
from service.session import Shape

_FAILURE = re.compile(r"CUDA failure (\d+)")
# cudaErrorInvalidValue and cudaErrorMemoryAllocation; after others the context is lost.
_PASSING = {1, 2}


class CudaSession:
    """See `service.session.Session`; a worker runs the session of its own GPU.

    Args:
        gpus: One for every worker.
        graph: Where it came from.
        provider: The execution provider.
        inputs: Shape by input name.
        outputs: Names of the outputs.
        buckets: Whether runs use fixed buffers; otherwise any size of batch runs plainly.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        graph: Path,
        *,
        provider: str,
        inputs: dict[str, Shape],
        outputs: tuple[str, ...],
        buckets: bool,
    ) -> None:
        self._gpus = gpus
        self._buckets = buckets
        self.graph = graph
        self.provider = provider
        self.inputs = inputs
        self.outputs = outputs

    @property
    def captures(self) -> bool:
        """Whether all its runs replay CUDA graphs."""
        return self._buckets and all(gpu.captures for gpu in self._gpus)

    def warm(self, worker: int) -> None:
        """Capture the CUDA graphs of a worker's GPU; to be called on the worker's thread.

        Raises:
            ModelFailedError: the graph does not run.
        """
        if self._buckets:
            try:
                self._gpus[worker].warm()
            except Exception as error:
                raise _failed(error) from error

    def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
        """Run the graph on a worker's GPU, on the worker's thread.

        Args:
            feeds: `[batch, …]` by input name.
            worker: Its index.

        Returns:
            `[batch, …]` by output name.

        Raises:
            ModelFailedError: onnxruntime raised; its error is the cause.
        """
        gpu = self._gpus[worker]
        try:
            return gpu.run(feeds) if self._buckets else gpu.run_plainly(feeds)
        except Exception as error:
            raise _failed(error) from error

    def trim(self, feeds: Arrays) -> None:
        """Its buffers stay as they are: there is nothing to give back."""

    def stop(self) -> None:
        """Make the runs that are going on fail at their next node, and all later ones."""
        for gpu in self._gpus:
            gpu.stop()


def _failed(error: Exception) -> ModelFailedError:
    found = _FAILURE.search(str(error))
    fatal = found is not None and int(found[1]) not in _PASSING
    return ModelFailedError("onnxruntime could not run the model", fatal=fatal)
