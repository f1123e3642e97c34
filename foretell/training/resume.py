"""Training state between epochs, so that an interrupted training goes on where it was."""

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
        out: Where the checkpoint will be.
        settings: All that the result depends on; a run goes on only with the same.

    Attributes:
        folder: It.
        log: The file there that becomes the checkpoint's log.
    """

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self.folder = out.with_name(out.name + ".partial")
        self.log = self.folder / LOG
        self.settings = settings

    def prepare(self) -> None:
        """Make the folder, to learn before the first epoch whether it can be written.

        Raises:
            OSError: it cannot.
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
        """The state to go on from, or None when there is none.

        Args:
            device: Where its tensors are to lie.
            warn: Is told where the state is of other versions of the libraries.

        Raises:
            ResumeError: the state is damaged or of a run with other settings.
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
            f"{name} {version}, here is {here.get(name)}"
            for name, version in saved.get("libraries", {}).items()
            if version != here.get(name)
        ]:
            warn(
                f"goes on from epochs run with {'; '.join(others)}: the weights may differ from "
                "those of a training that was not interrupted"
            )
        return dict(state)

    def remove(self) -> None:
        """Delete the folder, if there is one."""
        shutil.rmtree(self.folder, ignore_errors=True)
