from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import layout
from foretell.service.cuda import gpus
from foretell.service.engine import runtime
from foretell.service.engine.limits import resident_bytes
from foretell.service.engine.runtime import Runtime, check_distributions
from foretell.service.errors import StartError
from tests.service.cuda.fake import CPU, CUDA, FakeLibrary, FakeModule, expected, history
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeModule:
    """An onnxruntime whose CUDA provider is compiled in; `works` lists the providers that run."""
    module = FakeModule()
    monkeypatch.setattr(runtime, "import_module", lambda name: module)
    monkeypatch.setattr(gpus, "preload", lambda major: None)
    monkeypatch.setattr(gpus, "Library", lambda major: FakeLibrary())
    monkeypatch.setattr(gpus, "gpu_count", lambda: 2)
    return module


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_working_gpu_is_used(fake: FakeModule, device: str) -> None:
    opened = Runtime(device)  # type: ignore[arg-type]
    assert (opened.on_gpu, opened.provider, opened.inference_threads(8)) == (True, CUDA, 2)
    assert opened.largest_batch == 128
    assert opened.lost == {}
    session = opened.open(Path("g"), max_batch=4)
    assert (session.provider, fake.cuda(-1)["enable_cuda_graph"]) == (CUDA, "1")
    assert fake.calls == []


def test_batches_of_any_size_go_without_cuda_graphs(fake: FakeModule) -> None:
    session = Runtime("cuda").open(Path("g"))
    assert not session.captures
    session.warm(0)
    feeds = history(3)
    np.testing.assert_array_equal(session.run(feeds)["forecast"], expected(feeds))
    assert fake.cuda(-1)["enable_cuda_graph"] == "0"


def test_onnxruntime_logs_only_errors_of_opening_gpus(fake: FakeModule) -> None:
    Runtime("cuda").open(Path("x.onnx"))
    assert [one["severity"] for one in fake.created] == [3, 3, 4, 4]  # of two GPUs
    assert fake.severity == 4


def test_auto_falls_back_to_the_cpu_and_logs_it(
    fake: FakeModule, caplog: pytest.LogCaptureFixture
) -> None:
    fake.works = (CPU,)
    opened = Runtime("auto")
    assert (opened.on_gpu, opened.inference_threads(8), opened.lost) == (False, 8, {})
    assert "using the CPU" in caplog.text
    assert opened.open(Path("g"), max_batch=4).provider == CPU
    created = fake.created[-1]
    assert created["providers"] == [CPU]
    assert created["disabled_optimizers"] == ("SkipLayerNormFusion",)


def test_cuda_never_falls_back(fake: FakeModule) -> None:
    fake.works = (CPU,)
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        Runtime("cuda")


def test_cuda_requires_the_gpu_distribution(fake: FakeModule) -> None:
    fake.available = [CPU]
    with pytest.raises(StartError, match="extra gpu instead of cpu"):
        Runtime("cuda")


def test_cpu_runtime_does_not_use_gpus(fake: FakeModule) -> None:
    assert Runtime("cpu").open(Path("g")).provider == CPU
    assert fake.calls == ["Cpu"]
    options = fake.created[-1]["options"]
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.entries["session.intra_op.allow_spinning"] == "0"
    assert options.entries["session.use_env_allocators"] == "1"


def test_sessions_share_one_arena(runtime: Runtime, tmp_path: Path) -> None:
    graph = write_bundle(tmp_path, Spec(context=4096, horizon=4096)) / layout.FORECAST_GRAPH
    rows = {"history": np.ones((256, 4096, 1), np.float32)}
    sessions = [runtime.open(graph) for _ in range(8)]
    sessions[0].run(rows)
    held = resident_bytes()
    for session in sessions[1:]:
        session.run(rows)
    # A run needs at least 4 MiB, for the repeated row.
    assert resident_bytes() - held < 3 * 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ((), "no onnxruntime is installed"),
        (("onnxruntime", "onnxruntime-gpu"), "both installed"),
    ],
)
def test_onnxruntime_must_have_exactly_one_distribution(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(metadata, "distributions", lambda name: [name] if name in installed else [])
    with pytest.raises(StartError, match=message):
        check_distributions()


# In its own process: sessions of other tests would hold parts of the freed memory.
_GIVEN_BACK = """
import sys
import numpy, psutil
from pathlib import Path
from foretell.service.engine.runtime import Runtime

session = Runtime("cpu").open(Path(sys.argv[1]))
large = {"history": numpy.ones((2_000_000, 8, 1), numpy.float32)}
session.run(large)
taken = psutil.Process().memory_info().rss
session.shrink({"history": large["history"][:1]})
print(taken - psutil.Process().memory_info().rss)
assert session.run(large)["forecast"].shape == (2_000_000, 4, 1)
"""


def test_shrink_frees_the_memory_of_a_large_run(tmp_path: Path) -> None:
    graph = write_bundle(tmp_path, Spec()) / layout.FORECAST_GRAPH
    command = [sys.executable, "-c", _GIVEN_BACK, str(graph)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # At least the forecasts: four steps of float32 for each window.
    assert int(ran.stdout) > 0.8 * 2_000_000 * 4 * 4
