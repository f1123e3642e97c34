from __future__ import annotations

import pytest

from foretell.service.cuda.device import CudaError
from foretell.service.errors import DeviceLostError, ModelFailedError
from tests.service.cuda.fake import FakeLibrary, device

NODE = "Non-zero status code returned while running Sub node. Name:'node_sub' Status Message: "


@pytest.mark.parametrize(
    "message",
    [
        "Error in execution: CUDA failure 700: an illegal memory access was encountered",
        f"{NODE}CUDA error cudaErrorIllegalAddress:an illegal memory access was encountered",
        f"{NODE}CUDA failure 719: unspecified launch failure",
        "CUDA failure 999: unknown error",
        "CUDA failure 810: MPS client terminated",
        "CUDA failure 714: hardware stack error",
        "CUDA failure 721: tensor memory not completely freed",
    ],
)
def test_a_lost_device_is_told_by_number_or_name(
    message: str, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = device(3)
    failure = gpu.failure(RuntimeError(f"{message}\nmore of it"))
    assert isinstance(failure, DeviceLostError)
    assert failure.message == gpu.lost == f"GPU 3 is lost: {message}"
    assert caplog.messages == [gpu.lost]


@pytest.mark.parametrize("code", [1, 2, 701, 713, 720, 900, 901, 906])
def test_other_errors_pass_on_a_device_that_works(code: int) -> None:
    gpu = device()
    for error in (
        RuntimeError(f"CUDA failure {code}: …"),
        CudaError(code, "cudaErrorOther", "cudaMalloc"),
        RuntimeError(f"{NODE}CUDA error cudaErrorMemoryAllocation:out of memory"),
    ):
        assert isinstance(gpu.failure(error), ModelFailedError)
    assert gpu.lost is None


@pytest.mark.parametrize("text", ["CUDA failure 1: invalid argument", "CUBLAS failure 14", "x"])
def test_whatever_an_error_says_a_device_that_refuses_everything_is_lost(text: str) -> None:
    """What is seen first of a lost device may be a consequence."""
    library = FakeLibrary()
    library.fails = {"allocate": 700}
    gpu = device(library=library)
    assert isinstance(gpu.failure(RuntimeError(text)), DeviceLostError)
    assert gpu.lost == f"GPU 0 is lost: {text}"


def test_the_reason_leaves_out_where_in_onnxruntime_it_was() -> None:
    gpu = device(1)
    gpu.failure(RuntimeError("CUDA failure 700: illegal ; GPU=0 ; hostname=h ; file=/onnx.cc"))
    assert gpu.lost == "GPU 1 is lost: CUDA failure 700: illegal"


@pytest.mark.parametrize(
    ("fails", "lost"),
    [
        ({"allocate": 700}, True),
        ({"use": 999}, True),
        ({"allocate": 2}, False),
        ({}, False),
        ({"allocate": 901}, False),
    ],
)
def test_a_device_is_asked_where_an_error_does_not_say(fails: dict[str, int], lost: bool) -> None:
    library = FakeLibrary()
    library.fails = fails
    gpu = device(library=library)
    failure = gpu.failure(
        RuntimeError("Failed to allocate memory for requested buffer of size 256")
    )
    assert isinstance(failure, DeviceLostError if lost else ModelFailedError)
    assert not library.held


def test_an_error_of_cuda_itself_says_its_code() -> None:
    gpu = device()
    assert isinstance(gpu.failure(CudaError(719, "cudaErrorOther", "cudaGraph")), DeviceLostError)
    assert gpu.lost == "GPU 0 is lost: CUDA error cudaErrorOther (719) in cudaGraph"


def test_once_lost_it_stays_so(caplog: pytest.LogCaptureFixture) -> None:
    gpu = device()
    gpu.failure(RuntimeError("CUDA failure 700"))
    for code in (2, 719):
        assert isinstance(gpu.failure(RuntimeError(f"CUDA failure {code}")), DeviceLostError)
    assert gpu.lost == "GPU 0 is lost: CUDA failure 700"
    assert len(caplog.messages) == 1


def test_an_error_without_a_text() -> None:
    library = FakeLibrary()
    library.fails = {"allocate": 700}
    gpu = device(library=library)
    gpu.failure(ValueError())
    assert gpu.lost == "GPU 0 is lost: ValueError"
