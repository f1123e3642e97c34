"""A graph on a device: named arrays in, named arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.arrays import Arrays
from foretell.service.errors import ModelFailedError

Shape = tuple[int | None, ...]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class Session(Protocol):
    """What runs a graph on an execution provider."""

    graph: Path
    provider: str
    # By name; None where an axis is free.
    inputs: dict[str, Shape]
    outputs: tuple[str, ...]

    def warm(self, thread: int) -> None:
        """Prepare the runs of an inference thread; to be called on that thread. Raises as `run`."""

    def run(self, feeds: Arrays, thread: int = 0) -> Arrays:
        """Run the graph, on inference threads at the same time; `[batch, …]` by name in and out.

        Raises:
            ModelFailedError: onnxruntime raised; its error is the cause.
            DeviceLostError: nothing runs any more on the thread's device.
        """

    def shrink(self, feeds: Arrays) -> None:
        """Run once more, and give back what larger runs took of memory and none needs now."""

    def stop(self) -> None:
        """Make the runs that are going on fail at their next node, and all later ones."""

    def close(self) -> None:
        """Give back what it holds; it is not run any more."""


class CpuSession:
    """A `Session` on the CPU, of an `onnxruntime.InferenceSession` with `RunOptions` of its own."""

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
        self.inputs = input_shapes(session)
        self.outputs = output_names(session)

    def warm(self, thread: int) -> None:
        """There is nothing to prepare."""

    def run(
        self,
        feeds: Arrays,
        thread: int = 0,  # noqa: ARG002 - see Session
        *,
        options: Any = None,  # noqa: ANN401
    ) -> Arrays:
        try:
            values = self._session.run(self.outputs, feeds, options or self._options)
            return dict(zip(self.outputs, values, strict=True))
        except Exception as error:
            failure = ModelFailedError("onnxruntime could not run the model")
            # Its traceback would keep the session alive.
            raise failure from error.with_traceback(None)

    def shrink(self, feeds: Arrays) -> None:
        options = type(self._options)()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.run(feeds, options=options)

    def stop(self) -> None:
        self._options.terminate = True

    def close(self) -> None:
        self._session = None


def session_options(onnxruntime: Any) -> Any:  # noqa: ANN401 - onnxruntime is untyped
    """What every session is opened with: one thread, which is the caller's, and a quiet log."""
    options = onnxruntime.SessionOptions()
    # What fails is raised, and logged with all the rest: onnxruntime's own lines would be in
    # another form, and wait for the log's reader.
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def open_session(
    onnxruntime: Any,  # noqa: ANN401 - onnxruntime is untyped
    graph: Path,
    options: Any,  # noqa: ANN401
    *,
    copy: PrivateCopy | None,
    providers: Sequence[str | tuple[str, dict[str, str]]],
    disabled_optimizers: Sequence[str],
) -> Any:  # noqa: ANN401
    """An `InferenceSession`, which holds all that it was opened with."""
    source: Path | bytes = graph
    views: list[memoryview] = []
    # A copy of the bundle is read in place of its folder.
    if copy is not None:
        source = copy.read(graph.name)
        # onnxruntime copies what it needs of them until the session is open.
        views = [copy.view(layout.WEIGHTS)]
        sizes = [view.nbytes for view in views]
        options.add_external_initializers_from_files_in_memory([layout.WEIGHTS], views, sizes)
    try:
        return onnxruntime.InferenceSession(
            source,
            options,
            providers=providers,
            disabled_optimizers=disabled_optimizers,
            enable_fallback=0,
        )
    except Exception as error:
        # No variable holds it: the error's traceback holds this frame, and so would hold the error.
        raise BundleError(f"{graph}: onnxruntime refuses it: {error}") from error.with_traceback(
            None
        )
    finally:
        for view in views:
            view.release()
        if copy is not None:
            copy.rest()


def input_shapes(session: Any) -> dict[str, Shape]:  # noqa: ANN401 - onnxruntime is untyped
    """Shape by input name of an `InferenceSession`."""
    return {
        node.name: tuple(size if isinstance(size, int) else None for size in node.shape)
        for node in session.get_inputs()
    }


def output_names(session: Any) -> tuple[str, ...]:  # noqa: ANN401 - onnxruntime is untyped
    return tuple(node.name for node in session.get_outputs())
