"""Files of weights that importers must refuse."""

from __future__ import annotations

import os
from pathlib import Path

import torch


class Malicious:
    """Unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def break_file(path: Path, kind: str) -> None:
    """Damage safetensors in a way that every importer refuses."""
    match kind:
        case "no weights":
            path.unlink()
        case "cut off":
            path.write_bytes(path.read_bytes()[:500])
        case "pickle that runs code":
            path.unlink()
            victim = {"victim": Malicious(path.parent / "victim")}
            torch.save(victim, path.with_name("pytorch_model.bin"))
