"""The one onnxruntime of this process, and the device it runs on."""

from __future__ import annotations

import base64
import logging
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from bundle.errors import BundleError
from service.cuda.driver import gpu_count
from service.cuda.gpu import Gpu
from service.cuda.placement import RECORD, shape_arithmetic, strays
from service.cuda.session import CudaSession
from service.errors import StartError
from service.session import CpuSession, Session, input_shapes, output_names
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


_GPU_BATCH = 128
_CPU_BATCH = 16
_BROKEN = (
    "device cuda: onnxruntime could not load its CUDA provider (no GPU, or a driver or CUDA "
    "library is missing; its log above names it)"
)
# The smallest graph there is, y = x, to try a provider with.
_IDENTITY = base64.b64decode(
    "CAoSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQFA=="
)


class Runtime:
    """Opens sessions on the device that was asked for.

    Args:
        device: `cuda` never falls back to the CPU; `auto` does when CUDA does not work.

    Raises:
        StartError: not exactly one onnxruntime is installed, or it lacks the device, or CUDA was
            asked for and does not work.
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
        if self.provider == CUDA:
            # Finds the CUDA libraries of the pip wheels; no exported graph needs cuDNN.
            self._onnxruntime.preload_dlls(cudnn=False)
            if not self._cuda_works():
                if device == "cuda":
                    raise StartError(_BROKEN)
                _logger.warning("CUDA does not work here (see the lines above); using the CPU")
                self.provider = CPU
        self._gpus = gpu_count() if self.on_gpu else 0
        if not self.on_gpu:
            self._share_arena()

    @property
    def library(self) -> str:
        """Version of onnxruntime."""
        return str(self._onnxruntime.__version__)

    @property
    def on_gpu(self) -> bool:
        """Whether sessions run on CUDA."""
        return self.provider == CUDA

    def workers(self, threads: int) -> int:
        """How many workers its sessions take: one a GPU, or so many threads of the CPU."""
        return self._gpus if self.on_gpu else threads

    @property
    def largest_batch(self) -> int:
        """Most windows that gain from being run together on this device."""
        return _GPU_BATCH if self.on_gpu else _CPU_BATCH

    def open(
        self, graph: Path, *, max_batch: int | None = None, cuda_graphs: bool = True
    ) -> Session:
        """Open a session.

        Args:
            graph: The graph.
            max_batch: Most windows of a run; prepares a GPU for batches up to it. Without it runs
                may have any size, and take longer there.
            cuda_graphs: Whether these runs replay CUDA graphs, where they can be captured.

        Raises:
            StartError: CUDA does not work any more.
            BundleError: onnxruntime refuses the graph, or would run parts of it on the CPU although
                CUDA was asked for.
        """
        if self.on_gpu:
            return self._open_on_gpus(graph, max_batch, cuda_graphs=cuda_graphs)
        trimming = self._onnxruntime.RunOptions()
        trimming.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return CpuSession(
            self._create(graph, None), self._onnxruntime.RunOptions(), trimming, graph
        )

    def _share_arena(self) -> None:
        """Give all sessions one arena; theirs would each keep what their largest batch took.

        Without an arena every large buffer is mapped anew, and its pages are cleared again.
        """
        module = self._onnxruntime
        kinds = (module.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, module.OrtMemType.DEFAULT)
        module.create_and_register_allocator(module.OrtMemoryInfo("Cpu", *kinds), None)

    def _cuda_works(self) -> bool:
        """Whether a session comes up on CUDA."""
        options = self._onnxruntime.SessionOptions()
        try:
            session = self._onnxruntime.InferenceSession(
                _IDENTITY, options, providers=[CUDA, CPU], enable_fallback=0
            )
        except Exception as error:
            # A driver that is too old, or has no GPU.
            _logger.warning("onnxruntime could not use CUDA: %s", error)
            return False
        # Without a driver onnxruntime falls back to the CPU.
        return bool(session.get_providers()[0] == CUDA)

    def _open_on_gpus(self, graph: Path, max_batch: int | None, *, cuda_graphs: bool) -> Session:
        captures = cuda_graphs and max_batch is not None
        first, captures = self._open_on(graph, 0, captures=captures)
        if left := shape_arithmetic(first, CUDA):
            _logger.info("%s: arithmetic on shapes stays on the CPU: %s", graph, ", ".join(left))
        sessions = [(first, captures)]
        # Where another program holds a GPU's memory, that one goes without.
        sessions += [self._open_on(graph, gpu, captures=captures) for gpu in range(1, self._gpus)]
        inputs = input_shapes(first)
        gpus = [
            Gpu(
                self._onnxruntime,
                session,
                number,
                inputs=inputs,
                max_batch=max_batch or 1,
                reopen=partial(self._open_plainly, graph, number) if captured else None,
            )
            for number, (session, captured) in enumerate(sessions)
        ]
        return CudaSession(
            gpus,
            graph,
            provider=CUDA,
            inputs=inputs,
            outputs=output_names(first),
            buckets=max_batch is not None,
        )

    def _open_on(self, graph: Path, gpu: int, *, captures: bool) -> tuple[Any, bool]:
        """An `InferenceSession` on a GPU, and whether its runs can be captured."""
        session = self._create(graph, gpu, captures=True) if captures else None
        if session is None:
            return self._open_plainly(graph, gpu), False
        _check_placement(session, graph)
        return session, True

    def _open_plainly(self, graph: Path, gpu: int) -> Any:  # noqa: ANN401 - onnxruntime has no types
        """An `InferenceSession` on a GPU, whose runs are not captured."""
        session = self._create(graph, gpu)
        _check_placement(session, graph)
        return session

    def _create(self, graph: Path, gpu: int | None, *, captures: bool = False) -> Any:  # noqa: ANN401 - onnxruntime has no types
        """An `InferenceSession`; None if the graph cannot be captured."""
        options = self._onnxruntime.SessionOptions()
        # What fails is raised, and logged with all the rest: onnxruntime's own lines would be in
        # another form, and wait for the log's reader.
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        disabled: list[str] = []
        providers: list[str | tuple[str, dict[str, str]]] = [CPU]
        if gpu is not None:
            own = {"device_id": str(gpu), "enable_cuda_graph": str(int(captures))}
            providers = [(CUDA, _CUDA_OPTIONS | own), CPU]
            options.add_session_config_entry(*RECORD)
        else:
            options.add_session_config_entry("session.use_env_allocators", "1")
            # Slower than the parts it fuses: a quarter of a whole PatchTST.
            disabled = ["SkipLayerNormFusion"]
        try:
            return self._onnxruntime.InferenceSession(
                graph, options, providers=providers, disabled_optimizers=disabled, enable_fallback=0
            )
        except Exception as error:
            if captures:
                _logger.warning("%s: runs go without CUDA graphs: %s", graph, error)
                return None
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


def _check_placement(session: Any, graph: Path) -> None:  # noqa: ANN401 - onnxruntime has no types
    """Make sure that CUDA runs all of a graph: sessions of one process never mix devices."""
    if session.get_providers()[0] != CUDA:
        raise StartError(_BROKEN)
    if found := strays(session, CUDA):
        raise BundleError(
            f"{graph}: onnxruntime would run {len(found)} of its nodes on the CPU: "
            f"{', '.join(found[:8])}"
        )
