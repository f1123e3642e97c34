"""All GPUs of this process, and the sessions that run on them."""

from __future__ import annotations

import base64
import logging
from functools import partial
from pathlib import Path
from typing import Any

from foretell.bundle.errors import BundleError
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.cuda.device import (
    CaptureLock,
    CudaError,
    Device,
    Library,
    gpu_count,
    preload,
)
from foretell.service.cuda.gpu import CudaSession, Gpu
from foretell.service.errors import DeviceLostError, StartError
from foretell.service.session import CPU, CUDA, open_session, session_options

_logger = logging.getLogger(__name__)

_OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    # All hosts run the same kernels, with or without cuDNN.
    "enable_cudnn": "0",
    # Reduced precision selects other lags in auto-correlation; bundles are verified without it.
    "use_tf32": "0",
}
# Option that makes onnxruntime record the assignments that `elsewhere` reads.
RECORD = ("session.record_ep_graph_assignment_info", "1")
# Arithmetic on shapes, which onnxruntime keeps on the host on purpose; CUDA graphs run without it,
# as their shapes are fixed.
_SHAPE_OPS = {"Cast", "Concat", "ConstantOfShape", "Gather", "Shape", "Size", "Slice"}
_SHAPE_OPS |= {"Squeeze", "Unsqueeze"}
# Its kernel is from cuDNN.
_DISABLED_OPTIMIZERS = ("BiasSoftmaxFusion",)
_BROKEN = (
    "device cuda: onnxruntime could not load its CUDA provider (no GPU, or a driver or CUDA "
    "library is missing; the log above names it)"
)
# A minimal graph, y = x, to test a provider.
_IDENTITY = base64.b64decode(
    "CAoSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQFA=="
)


class Gpus:
    """The GPUs on which this process can open sessions; StartError without any, see the log."""

    def __init__(self, onnxruntime: Any) -> None:  # noqa: ANN401 - untyped
        self._onnxruntime = onnxruntime
        self.devices = self._working()
        if not self.devices:
            raise StartError(_BROKEN)

    @property
    def lost(self) -> dict[int, str]:
        """Why a GPU does not work any more, by the number of its inference thread."""
        return {thread: device.lost for thread, device in enumerate(self.devices) if device.lost}

    def open(
        self, graph: Path, max_batch: int | None, copy: PrivateCopy | None = None
    ) -> CudaSession:
        """Open a graph on every GPU, with the arguments and errors of `Runtime.open`."""
        gpus: list[Gpu] = []
        try:
            for device in self.devices:
                open_session = partial(self._open_on, graph, copy)
                gpus.append(Gpu(self._onnxruntime, device, open_session, max_batch=max_batch))
        except Exception as error:
            for gpu in gpus:
                gpu.close()
            failure = self.devices[len(gpus)].failure(error)
            if isinstance(failure, DeviceLostError):
                raise BundleError(f"{graph}: {failure}") from error
            if isinstance(error, CudaError):
                raise BundleError(f"{graph}: {error}") from error
            raise
        if nodes := elsewhere(gpus[0].session, CUDA)[1]:
            _logger.info("%s: arithmetic on shapes stays on the CPU: %s", graph, ", ".join(nodes))
        return CudaSession(gpus, graph)

    def _working(self) -> tuple[Device, ...]:
        count = gpu_count()
        if not count:
            _logger.warning("NVIDIA's driver is missing, or finds no GPU")
            return ()
        major = self._onnxruntime.cuda_version.partition(".")[0]
        try:
            preload(major)
            library = Library(major)
        except OSError as error:
            _logger.warning("a library of CUDA is missing: %s", error)
            return ()
        capture_lock = CaptureLock()
        devices = (Device(number, library, capture_lock) for number in range(count))
        return tuple(device for device in devices if self._works(device.number))

    def _works(self, number: int) -> bool:
        provider = (CUDA, _OPTIONS | {"device_id": str(number)})
        try:
            session = self._onnxruntime.InferenceSession(
                _IDENTITY, providers=[provider, CPU], enable_fallback=0
            )
        except Exception as error:
            # The driver is too old, or the GPU is broken or full.
            _logger.warning("onnxruntime could not use GPU %d: %s", number, error)
            return False
        # Without a driver onnxruntime falls back to the CPU.
        return bool(session.get_providers()[0] == CUDA)

    def _open_on(
        self, graph: Path, copy: PrivateCopy | None, device: int, stream: int, captures: bool
    ) -> Any:  # noqa: ANN401 - untyped
        options = session_options(self._onnxruntime)
        options.add_session_config_entry(*RECORD)
        own = {
            "device_id": str(device),
            "enable_cuda_graph": str(int(captures)),
            "user_compute_stream": str(stream),
        }
        session = open_session(
            self._onnxruntime,
            graph,
            options,
            copy=copy,
            # The CPU runs arithmetic on shapes.
            providers=[(CUDA, _OPTIONS | own), CPU],
            disabled_optimizers=_DISABLED_OPTIMIZERS,
        )
        # CUDA must run the whole graph: sessions never mix devices.
        works, (nodes, _) = session.get_providers()[0] == CUDA, elsewhere(session, CUDA)
        if works and not nodes:
            return session
        # The error would keep it alive for longer than its stream.
        del session
        if not works:
            raise StartError(_BROKEN)
        raise BundleError(
            f"{graph}: onnxruntime would run {len(nodes)} of its nodes on the CPU: "
            f"{', '.join(nodes[:8])}"
        )


def elsewhere(session: Any, provider: str) -> tuple[list[str], list[str]]:  # noqa: ANN401 - untyped
    """Nodes that another provider runs, `name (operator)`; arithmetic on shapes comes second.

    The session is an `InferenceSession` that was opened with `RECORD`.
    """
    nodes = [
        node
        for subgraph in session.get_provider_graph_assignment_info()
        if subgraph.ep_name != provider
        for node in subgraph.get_nodes()
    ]
    strays, on_shapes = (
        [f"{node.name} ({node.op_type})" for node in nodes if (node.op_type in _SHAPE_OPS) == kind]
        for kind in (False, True)
    )
    return strays, on_shapes
