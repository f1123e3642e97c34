"""Training state between epochs, from which an interrupted training resumes."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from foretell.models.checkpoint import LOG, library_versions
from foretell.training.errors import ResumeError

_STATE = "state.pt"


class PartialRun:
    """The folder `<out>.partial`, which holds the state after the last finished epoch.

    Args:
        out: Folder of the checkpoint.
        settings: Everything that the result depends on; a run resumes only with the same.

    Attributes:
        folder: The folder.
        log: The file in it that becomes the checkpoint's log.
    """

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self.folder = out.with_name(out.name + ".partial")
        self.log = self.folder / LOG
        self.settings = settings

    def prepare(self) -> None:
        """Make the folder, so that an error comes before the first epoch.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, state: dict[str, Any]) -> None:
        """Replace the state on disk in one step."""
        self.prepare()
        temporary = self.folder / f"{_STATE}.new"
        with temporary.open("wb") as file:
            saved = {"settings": self.settings, "state": state, "libraries": library_versions()}
            torch.save(saved, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / _STATE)

    def load(
        self, device: torch.device, warn: Callable[[str], None] = lambda _: None
    ) -> dict[str, Any] | None:
        """The saved state, or None without one.

        Args:
            device: Device for the tensors.
            warn: Receives a warning if the state is from other versions of the libraries.

        Raises:
            ResumeError: the state is damaged or from a run with other settings.
        """
        path = self.folder / _STATE
        if not path.exists():
            return None
        afresh = "start afresh with --restart"
        try:
            saved = torch.load(path, map_location=device, weights_only=True)
            found, state = saved["settings"], saved["state"]
        except (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError):
            raise ResumeError(f"{path}: damaged, cannot be read; {afresh}") from None
        changed = [
            f"{name} was {found.get(name)!r} and is {self.settings.get(name)!r}"
            for name in sorted(found.keys() | self.settings.keys())
            if found.get(name) != self.settings.get(name)
        ]
        if changed:
            raise ResumeError(
                f"{self.folder}: an unfinished training with other settings: "
                f"{'; '.join(changed)}; {afresh}"
            )
        here = library_versions()
        if others := [
            f"{name} {version}, now {here.get(name)}"
            for name, version in saved.get("libraries", {}).items()
            if version != here.get(name)
        ]:
            warn(
                f"resumes epochs run with {'; '.join(others)}: the weights may differ from those "
                "of an uninterrupted training"
            )
        return dict(state)

    def remove(self) -> None:
        """Delete the folder, if there is one."""
        shutil.rmtree(self.folder, ignore_errors=True)
