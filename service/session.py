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
    """A graph that is open on an execution provider."""

    graph: Path
    provider: str
    # Shapes by name; None is an axis of any length.
    inputs: dict[str, Shape]
    outputs: tuple[str, ...]

    def warm(self, thread: int) -> None:
        """Prepare the runs of an inference thread; called on that thread. Raises as `run`."""

    def run(self, feeds: Arrays, thread: int = 0) -> Arrays:
        """Run the graph, `[batch, …]` by name in and out; threads may call it at the same time.

        Raises:
            ModelFailedError: onnxruntime raised; its error is the cause.
            DeviceLostError: the thread's device has failed.
        """

    def shrink(self, feeds: Arrays) -> None:
        """Run once more, and give back memory that larger runs left."""

    def stop(self) -> None:
        """Make current and later runs fail at their next node."""

    def close(self) -> None:
        """Free its resources; it must not run any more."""


class CpuSession:
    """A `Session` on the CPU: an `onnxruntime.InferenceSession` with its own `RunOptions`."""

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
        """Do nothing: a CPU needs no preparation."""

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
    """Options of every session: no threads but the caller's, and a quiet log."""
    options = onnxruntime.SessionOptions()
    # Failures are raised and logged: onnxruntime's own lines would have another format, and wait
    # for the log's reader.
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
    """Open an `InferenceSession`, which keeps its own copy of the weights."""
    source: Path | bytes = graph
    views: list[memoryview] = []
    # The private copy of the bundle replaces its folder.
    if copy is not None:
        source = copy.read(graph.name)
        # onnxruntime copies the weights before the session is open.
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
        # Not in a variable: the traceback holds this frame, which would then hold the error.
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
