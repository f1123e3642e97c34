"""The servers that are measured: how each is installed, started and asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.serving import bodies
from bench.serving.bodies import Answer, Body

ROOT = Path(__file__).parent.parent.parent
OURS = "foretell"
_PEERS = Path(__file__).parent / "peers"
_INSTALL_SECONDS = 600
_ONNXRUNTIME = ("onnxruntime==1.31.1", "numpy<3")


@dataclass(frozen=True)
class Contender:
    """A server.

    Attributes:
        name: What the report calls it.
        script: In `peers/`; None for ours.
        serves: What the script is given: the bundle's repository, the checkpoint, or the graph of
            `torch.onnx.export`.
        path: Where it answers.
        ready: What answers 200 once it serves.
        body: Makes its request.
        answer: Finds the forecast in its answer.
        requirements: Of a virtual environment of its own; none to run in this one.
        constraints: Versions of what that environment has, in pip's format.
        home: Name of that environment; the contender's if empty.
        python: Of that environment.
        arguments: Of our command, besides.
        tree: Our code.
    """

    name: str
    script: str | None
    serves: Literal["repository", "checkpoint", "graph"] = "graph"
    path: str = "/forecast"
    ready: str = "/ready"
    body: Body = bodies.plain
    answer: Answer = bodies.plain_answer
    requirements: tuple[str, ...] = ()
    constraints: Path | None = None
    home: str = ""
    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    tree: Path = ROOT

    def install(self, folder: Path) -> Path:
        """Make its environment, unless it is there; returns its Python.

        Raises:
            RuntimeError: pip failed; the message has the end of its output.
        """
        if not self.requirements:
            return Path(sys.executable)
        environment = folder / (self.home or self.name.replace(" ", "-").lower())
        python, done = environment / "bin" / "python", environment / ".installed"
        wanted = "\n".join(self.requirements)
        constrained: list[str | Path] = []
        if self.constraints is not None:
            wanted += f"\n{self.constraints.read_text()}"
            constrained = ["--constraint", self.constraints]
        if done.exists() and done.read_text() == wanted:
            return python
        shutil.rmtree(environment, ignore_errors=True)
        install = [python, "-m", "pip", "install", "--quiet", *constrained, *self.requirements]
        for command in ([self.python, "-m", "venv", environment], install):
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
            if ran.returncode:
                raise RuntimeError(f"it could not be installed: {ran.stderr.strip()[-300:]}")
        done.write_text(wanted)
        return python

    def command(self, python: Path, served: Path, port: int) -> list[str | Path]:
        """Starts it."""
        if self.script is None:
            command = [python, "-m", "foretell", "serve", "--models", served, "--port", str(port)]
            return [*command, *self.arguments]
        return [python, _PEERS / self.script, served, str(port)]

    def environment(self, python: Path) -> dict[str, str]:
        """Variables it runs with."""
        if self.script is None or not self.requirements:
            return {
                "PYTHONPATH": str(self.tree),
                "FORETELL_DEVICE": "cpu",
                "ORT_DISABLE_TELEMETRY": "1",
            }
        return {"PATH": f"{python.parent}:{os.environ['PATH']}"}


CONTENDERS = (
    Contender(
        OURS,
        None,
        serves="repository",
        ready="/readyz",
        body=bodies.ours,
        answer=bodies.ours_answer,
    ),
    Contender(
        f"{OURS} --workers 2",
        None,
        serves="repository",
        ready="/readyz",
        body=bodies.ours,
        answer=bodies.ours_answer,
        arguments=("--workers", "2"),
    ),
    Contender("FastAPI + onnxruntime", "fastapi_onnxruntime.py"),
    Contender("FastAPI + torch", "fastapi_torch.py", serves="checkpoint"),
    Contender(
        "LitServe",
        "litserve_peer.py",
        requirements=("litserve==0.2.19", *_ONNXRUNTIME),
    ),
    Contender(
        "MLServer",
        "mlserver_peer.py",
        path="/v2/models/patchtst/infer",
        ready="/v2/models/patchtst/ready",
        body=bodies.open_inference,
        answer=bodies.open_inference_answer,
        # Newer uvloop gives its worker processes no event loop.
        requirements=("mlserver==1.7.1", "uvloop==0.21.0", *_ONNXRUNTIME),
    ),
    Contender(
        "BentoML",
        "bentoml_peer.py",
        ready="/readyz",
        body=bodies.batched,
        answer=bodies.batched_answer,
        requirements=("bentoml==1.4.39", *_ONNXRUNTIME),
    ),
    Contender(
        "Ray Serve",
        "ray_peer.py",
        ready="/-/healthz",
        requirements=("ray[serve]==2.60.0", *_ONNXRUNTIME),
    ),
    Contender(
        "Triton",
        "triton_peer.py",
        path="/v2/models/patchtst/infer",
        ready="/v2/models/patchtst/ready",
        body=bodies.open_inference,
        answer=bodies.open_inference_answer,
        requirements=("nvidia-pytriton==0.7.0", *_ONNXRUNTIME),
        # Triton's Python backend is linked with this one's library.
        python="/usr/bin/python3.11",
    ),
)
