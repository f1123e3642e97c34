"""The ways in which one model can be run."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import torch
from torch.export import Dim

from bench.sizes import SCALER, Size
from bench.timing import Call
from foretell.export.graphs import OPSET, trace
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.models.forecaster import Forecaster
from foretell.service.engine.runtime import Runtime

EAGER, COMPILED, PLAIN, OURS = "torch", "torch.compile", "plain export", "foretell"
# torch.compile makes a program for each batch size, which takes it long.
COMPILED_BATCH = 8
_COMPILE_SECONDS = 90


class Contenders:
    """A model in every form it can be run in.

    Args:
        size: The model.
        runtime: Opens sessions as the service does.
        folder: For the graphs.

    Attributes:
        graphs: File by name of the contender.
        skipped: Reason by name of the contender.
    """

    def __init__(self, size: Size, runtime: Runtime, folder: Path) -> None:
        self.size = size
        self.plain = size.model()
        self.graphs = {PLAIN: folder / "plain.onnx", OURS: folder / "ours.onnx"}
        self.skipped: dict[str, str] = {}
        ours = ServingForm(inference_form(self.plain), SCALER, "forecast")
        onnx.save(trace(ours), self.graphs[OURS])
        self.input_names = ours.input_names
        try:
            self._export_plain(self.graphs[PLAIN])
            self._sessions = {name: runtime.open(path) for name, path in self.graphs.items()}
        except Exception as error:
            self.skipped[PLAIN] = _line(error)
            self._sessions = {OURS: runtime.open(self.graphs[OURS])}
            del self.graphs[PLAIN]

    def calls(self, batch: int, *, compiled: bool) -> dict[str, Call]:
        """One call of each contender, by name."""
        inputs = self.size.inputs(batch)
        calls = {EAGER: _call(self.plain, inputs)}
        if compiled and batch == COMPILED_BATCH:
            try:
                calls[COMPILED] = _compile(self.plain, inputs)
            except Exception as error:
                self.skipped[COMPILED] = _line(error)
        feeds = dict(zip(self.input_names, (part.numpy() for part in inputs), strict=True))
        for name, session in self._sessions.items():
            calls[name] = lambda session=session: session.run(feeds)  # type: ignore[misc]
        return calls

    def _export_plain(self, path: Path) -> None:
        """What one gets from torch.onnx.export without further thought."""
        example = self.size.inputs(batch=2)
        batch = Dim("batch", min=1)
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                self.plain,
                example,
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=tuple({0: batch} for _ in example),
                input_names=self.input_names,
                output_names=("forecast",),
                verbose=False,
            )
        if program is None:
            raise RuntimeError("torch.onnx.export returned no program")
        onnx.save(program.model_proto, path)


def _call(model: Callable[..., object], inputs: tuple[torch.Tensor, ...]) -> Call:
    def call() -> object:
        with torch.inference_mode():
            return model(*inputs)

    return call


def _compile(model: Forecaster, inputs: tuple[torch.Tensor, ...]) -> Call:
    with _limit(_COMPILE_SECONDS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compiler.reset()
        call = _call(torch.compile(model), inputs)
        call()
    return call


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def expire(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
