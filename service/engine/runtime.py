"""The one onnxruntime of this process, and the device it runs on."""

from __future__ import annotations

import logging
import platform
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from foretell.bundle.private_copy import PrivateCopy
from foretell.service.cuda.gpus import Gpus
from foretell.service.errors import StartError
from foretell.service.session import CPU, CUDA, CpuSession, Session, open_session, session_options
from foretell.service.settings import DeviceChoice

_logger = logging.getLogger(__name__)

_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu")
# Its kernel is slower than the kernels of its parts: a whole PatchTST takes a quarter longer.
_DISABLED_OPTIMIZERS = ("SkipLayerNormFusion",)
# Severities of onnxruntime's own log: from errors on, and from crashes on.
_ERRORS, _NOTHING = 3, 4
GPU_BATCH = 128
# Smaller batches pay the fixed cost of a run more often, larger ones leave the CPU's caches.
# `selftest.fastest_batch` finds the fastest size of a model.
CPU_BATCH = 8


class Runtime:
    """Opens sessions on a device, or StartError; `auto` takes the CPU if CUDA does not work."""

    def __init__(self, device: DeviceChoice) -> None:
        check_distributions()
        self._onnxruntime: Any = import_module("onnxruntime")
        # onnxruntime only logs which library of CUDA is missing.
        self._onnxruntime.set_default_logger_severity(_ERRORS)
        has_cuda = CUDA in self._onnxruntime.get_available_providers()
        if device == "cuda" and not has_cuda:
            raise StartError(
                "device cuda: the installed onnxruntime has no CUDA provider; "
                "install foretell with the extra gpu instead of cpu"
            )
        self._gpus = self._find_gpus(device) if has_cuda and device != "cpu" else None
        self.provider = CPU if self._gpus is None else CUDA
        # Any other failure is raised; onnxruntime's own lines would wait for the log's reader.
        self._onnxruntime.set_default_logger_severity(_NOTHING)
        if self._gpus is None:
            self._share_arena()

    @property
    def library(self) -> str:
        return str(self._onnxruntime.__version__)

    @property
    def build(self) -> dict[str, str]:
        """Versions and provider of this process, by label of `foretell_build_info`."""
        return {
            "version": metadata.version("foretell"),
            "python": platform.python_version(),
            "onnxruntime": self.library,
            "provider": self.provider,
        }

    @property
    def on_gpu(self) -> bool:
        return self._gpus is not None

    @property
    def lost(self) -> dict[int, str]:
        """Why a GPU is lost, by the index of its inference thread."""
        return {} if self._gpus is None else self._gpus.lost

    def inference_threads(self, threads: int) -> int:
        """Number of inference threads: one for each GPU, or `threads` on the CPU."""
        return threads if self._gpus is None else len(self._gpus.devices)

    @property
    def largest_batch(self) -> int:
        """Most windows that run faster together on this device."""
        return GPU_BATCH if self.on_gpu else CPU_BATCH

    def open(
        self, graph: Path, *, copy: PrivateCopy | None = None, max_batch: int | None = None
    ) -> Session:
        """Open a session; the file is read from the private `copy` of its bundle, if there is one.

        A GPU is prepared for batches of up to `max_batch` windows, which replay CUDA graphs if
        these can be captured. With None runs may have any size, and take longer on a GPU.

        Raises:
            StartError: CUDA does not work any more.
            BundleError: onnxruntime refuses the graph, or would run parts of it on the CPU although
                the device is a GPU.
        """
        if self._gpus is not None:
            return self._gpus.open(graph, max_batch, copy)
        options = session_options(self._onnxruntime)
        options.add_session_config_entry("session.use_env_allocators", "1")
        session = open_session(
            self._onnxruntime,
            graph,
            options,
            copy=copy,
            providers=[CPU],
            disabled_optimizers=_DISABLED_OPTIMIZERS,
        )
        return CpuSession(session, self._onnxruntime.RunOptions(), graph)

    def _find_gpus(self, device: DeviceChoice) -> Gpus | None:
        try:
            return Gpus(self._onnxruntime)
        except StartError:
            if device == "cuda":
                raise
            _logger.warning("CUDA does not work here (see the lines above); using the CPU")
            return None

    def _share_arena(self) -> None:
        """Give all sessions one arena; separate ones would each keep their largest batch's memory.

        Without an arena every large buffer is mapped anew, and its pages are cleared.
        """
        module = self._onnxruntime
        kinds = (module.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, module.OrtMemType.DEFAULT)
        module.create_and_register_allocator(module.OrtMemoryInfo("Cpu", *kinds), None)


def check_distributions() -> None:
    """Raise StartError unless exactly one distribution of onnxruntime is installed."""
    installed = [name for name in _DISTRIBUTIONS if any(metadata.distributions(name=name))]
    if not installed:
        raise StartError("no onnxruntime is installed; install foretell with the extra cpu or gpu")
    if len(installed) > 1:
        raise StartError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; "
            "run: pip uninstall onnxruntime onnxruntime-gpu, then install foretell with the extra "
            "cpu or gpu"
        )
