"""`make gpu-check` from its beginning to its end, but for the numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.stand_in.log import forbidden, read
from bench.stand_in.machine import Machine


def test_the_first_hour(stand_in: Machine, gpu_folder: Path, tmp_path: Path) -> None:
    page, log = tmp_path / "gpu.md", tmp_path / "log"
    page.write_text("# On a GPU\n")
    machine = Machine(stand_in.folder, 2)
    # What is measured says nothing here: the shortest will do.
    arguments = ("--page", page, "--quick", "--seconds", 0.1)
    said = machine.run("bench.stand_in.gpu_check", gpu_folder, *arguments, log=log, seconds=300)
    for name in ("autoformer", "transformer", "patchtst", "patchtst-float16", "patchtst-bfloat16"):
        assert f"{name}: passed" in said
        assert f"| {name} | passed | 0 | 0.0e+00 |" in page.read_text()
    text = page.read_text()
    assert "2 GPU: " in text
    assert "and none failed" in text
    assert "| patchtst | 2 HTTP workers |" in text
    assert forbidden(read(log)) == []


def test_a_gpu_that_computes_nothing_fails(
    stand_in: Machine, gpu_folder: Path, tmp_path: Path
) -> None:
    """Nobody says that the numbers are not to be looked at."""
    page = tmp_path / "gpu.md"
    command = [stand_in.python, "-m", "bench.gpu", str(gpu_folder), "--page", str(page), "--quick"]
    ran = subprocess.run(
        command, env=stand_in.environment(), capture_output=True, text=True, timeout=300
    )
    assert ran.returncode != 0
    assert "patchtst: " in ran.stdout
    assert "differ from the expected ones" in ran.stdout
    assert "patchtst: passed" not in ran.stdout


def test_without_a_gpu_it_says_so(stand_in: Machine, gpu_folder: Path) -> None:
    command = [stand_in.python, "-m", "bench.gpu", str(gpu_folder)]
    environment = Machine(stand_in.folder, 0).environment()
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert "gpu-check: device cuda: onnxruntime could not load its CUDA provider" in ran.stderr
