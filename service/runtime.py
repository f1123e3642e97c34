"""The one onnxruntime of this process, and the device it runs on."""

from __future__ import annotations

import logging
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from bundle.errors import BundleError
from service.errors import StartError
from service.session import Session
from service.settings import DeviceChoice

_logger = logging.getLogger(__name__)

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"

_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu")
_CUDA_OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "do_copy_in_default_stream": "1",
    # Reduced precision picks other lags in auto-correlation; bundles are verified without it.
    "use_tf32": "0",
}


class Runtime:
    """Opens sessions on the device that was asked for.

    Args:
        device: `cuda` never falls back to the CPU; `auto` does when CUDA does not work.

    Raises:
        StartError: not exactly one onnxruntime is installed, or it lacks the device.
    """

    def __init__(self, device: DeviceChoice) -> None:
        check_distributions()
        self._onnxruntime: Any = import_module("onnxruntime")
        self._onnxruntime.disable_telemetry_events()
        has_cuda = CUDA in self._onnxruntime.get_available_providers()
        if device == "cuda" and not has_cuda:
            raise StartError(
                "device cuda: the installed onnxruntime has no CUDA provider; "
                "install foretell with the extra gpu instead of cpu"
            )
        self.provider = CUDA if has_cuda and device != "cpu" else CPU
        self._may_fall_back = device == "auto"
        if self.provider == CUDA:
            # Finds the CUDA libraries of the pip wheels; no exported graph needs cuDNN.
            self._onnxruntime.preload_dlls(cudnn=False)

    @property
    def on_gpu(self) -> bool:
        """Whether sessions run on CUDA."""
        return self.provider == CUDA

    def open(self, graph: Path) -> Session:
        """Open a session.

        Raises:
            StartError: CUDA was asked for and does not work.
            BundleError: onnxruntime refuses the graph.
        """
        session = self._create(graph)
        if self.on_gpu and session.get_providers()[0] != CUDA:
            if not self._may_fall_back:
                raise StartError(
                    "device cuda: onnxruntime could not load its CUDA provider (no GPU, or a "
                    "driver or CUDA library is missing; its log above names it)"
                )
            _logger.warning("CUDA does not work here (see the lines above); serving from the CPU")
            self.provider = CPU
            session = self._create(graph)
        # Sessions of one process never mix devices.
        self._may_fall_back = False
        return Session(session, self._onnxruntime.RunOptions(), graph)

    def _create(self, graph: Path) -> Any:  # noqa: ANN401 - onnxruntime has no types
        options = self._onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        disabled: list[str] = []
        providers: list[str | tuple[str, dict[str, str]]] = [CPU]
        if self.on_gpu:
            providers = [(CUDA, _CUDA_OPTIONS), CPU]
        else:
            # The arena keeps the memory of the largest batch for ever.
            options.enable_cpu_mem_arena = False
            # Slower than the parts it fuses: a quarter of a whole PatchTST.
            disabled = ["SkipLayerNormFusion"]
        try:
            return self._onnxruntime.InferenceSession(
                graph, options, providers=providers, disabled_optimizers=disabled, enable_fallback=0
            )
        except Exception as error:
            raise BundleError(f"{graph}: onnxruntime refuses it: {error}") from error


def check_distributions() -> None:
    """Make sure that exactly one distribution of onnxruntime is installed.

    Raises:
        StartError: there is none, or there are both and each has overwritten files of the other.
    """
    installed = [name for name in _DISTRIBUTIONS if _is_installed(name)]
    if not installed:
        raise StartError("no onnxruntime is installed; install foretell with the extra cpu or gpu")
    if len(installed) > 1:
        raise StartError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; "
            "run: pip uninstall onnxruntime onnxruntime-gpu, then install foretell with the extra "
            "cpu or gpu"
        )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
