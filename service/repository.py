"""The served models: which there are, which answers a request, and which were refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from bundle import layout
from bundle.errors import BundleError
from service.errors import (
    InvalidInputError,
    NotReadyError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from service.model import Model

_logger = logging.getLogger(__name__)


class Repository:
    """Models by name and version; the newest version that loaded is a name's default.

    Args:
        models: The loaded models.
        refused: Why a bundle was not loaded, by (name, version).
    """

    def __init__(self, models: list[Model], refused: dict[tuple[str, str], str]) -> None:
        self._refused = refused
        self._draining = False
        self._models: dict[str, dict[str, Model]] = {}
        for model in sorted(models, key=lambda model: int(model.version)):
            self._models.setdefault(model.name, {})[model.version] = model

    @classmethod
    def load(cls, folder: Path, open_model: Callable[[Path], Model]) -> Repository:
        """Load every version of every model.

        Args:
            folder: `<folder>/<name>/<version>/` are bundles.
            open_model: Loads one bundle; a `BundleError` it raises refuses only that one.

        Raises:
            StartError: there is no bundle, or none could be loaded.
        """
        models: list[Model] = []
        refused: dict[tuple[str, str], str] = {}
        try:
            names = layout.model_names(folder)
        except BundleError as error:
            raise StartError(f"model repository {error}") from error
        for name in names:
            for version in layout.versions(folder, name):
                try:
                    models.append(open_model(folder / name / version))
                except BundleError as error:
                    _logger.error("refused %s@%s: %s", name, version, error)
                    refused[name, version] = str(error)
        if not names:
            raise StartError(
                f"model repository {folder}: no bundle in it; "
                "`foretell export` writes them as <name>/<version>/"
            )
        if not models:
            reasons = "\n".join(f"  {reason}" for reason in refused.values())
            raise StartError(f"model repository {folder}: no bundle could be loaded:\n{reasons}")
        return cls(models, refused)

    @property
    def names(self) -> list[str]:
        """Names of the models that answer."""
        return sorted(self._models)

    @property
    def models(self) -> list[Model]:
        """Every loaded version of every model."""
        return [model for versions in self._models.values() for model in versions.values()]

    def versions(self, name: str) -> list[str]:
        """Loaded versions of a model, oldest first."""
        return list(self._models[name])

    def find(self, reference: str | None) -> Model:
        """The model a request means.

        Args:
            reference: `name`, `name@version`, or None for the only model served.

        Raises:
            InvalidInputError: no name is given and several models are served.
            UnknownModelError: the name is not served.
            UnknownVersionError: the name is served, that version of it is not.
            NotReadyError: the model or version is in the repository and was refused.
        """
        if reference is None:
            if len(self._models) > 1:
                raise InvalidInputError(
                    f"required when several models are served: {', '.join(self.names)}",
                    param="model",
                )
            return self._newest(self.names[0])
        name, at, version = reference.partition("@")
        if (name, version) in self._refused or (not at and self._only_refused(name)):
            raise NotReadyError(f"{reference} did not load; /readyz says why", param="model")
        if name not in self._models:
            raise UnknownModelError(
                f"no model {name[:64]!r}; served: {', '.join(self.names)}", param="model"
            )
        if not at:
            return self._newest(name)
        if version not in self._models[name]:
            raise UnknownVersionError(
                f"{name} has no version {version[:32]!r}; served: {', '.join(self.versions(name))}",
                param="model",
            )
        return self._models[name][version]

    @property
    def ready(self) -> bool:
        """Whether every bundle was loaded and the server is not stopping."""
        return not self._draining and not self._refused

    def report(self) -> dict[str, str]:
        """State of every bundle, by `name@version`: `ready`, `draining`, or why it was refused."""
        state = "draining" if self._draining else "ready"
        report = {f"{model.name}@{model.version}": state for model in self.models}
        report.update({f"{name}@{version}": why for (name, version), why in self._refused.items()})
        return report

    def drain(self) -> None:
        """Say that the server is stopping; requests are still answered."""
        self._draining = True

    def close(self, timeout: float) -> None:
        """Finish what was accepted, within `timeout` seconds over all models."""
        self.drain()
        end = time.monotonic() + timeout
        for model in self.models:
            model.close(max(0.0, end - time.monotonic()))

    def _newest(self, name: str) -> Model:
        return list(self._models[name].values())[-1]

    def _only_refused(self, name: str) -> bool:
        return name not in self._models and any(name == refused for refused, _ in self._refused)
