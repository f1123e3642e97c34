"""One onnxruntime session: named arrays in, named arrays out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from service.errors import ModelFailedError

Arrays = dict[str, NDArray[Any]]
Shape = tuple[int | None, ...]


class Session:
    """A graph on a device; threads may run it at the same time.

    Args:
        session: An `onnxruntime.InferenceSession`.
        options: An `onnxruntime.RunOptions` for its runs alone.
        graph: Where it came from.

    Attributes:
        graph: Where it came from.
        provider: The execution provider that runs it.
        inputs: Shape by input name; None where an axis is free.
        outputs: Names of the outputs.
    """

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - onnxruntime is untyped
        options: Any,  # noqa: ANN401
        graph: Path,
    ) -> None:
        self._session = session
        self._options = options
        self.graph = graph
        self.provider: str = session.get_providers()[0]
        self.inputs: dict[str, Shape] = {
            node.name: tuple(size if isinstance(size, int) else None for size in node.shape)
            for node in session.get_inputs()
        }
        self.outputs: tuple[str, ...] = tuple(node.name for node in session.get_outputs())

    def run(self, feeds: Arrays) -> Arrays:
        """Run the graph.

        Args:
            feeds: `[batch, …]` by input name.

        Returns:
            `[batch, …]` by output name.

        Raises:
            ModelFailedError: onnxruntime raised; its error is the cause.
        """
        try:
            values = self._session.run(self.outputs, feeds, self._options)
            return dict(zip(self.outputs, values, strict=True))
        except Exception as error:
            raise ModelFailedError("onnxruntime could not run the model") from error

    def stop(self) -> None:
        """Make the runs that are going on fail at their next node, and all later ones."""
        self._options.terminate = True
