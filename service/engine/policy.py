"""The choice of versions: by the settings of the server, and by the files of the repository."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from foretell.bundle import serving
from foretell.bundle.errors import BundleError
from foretell.bundle.serving import NOTHING, Serving
from foretell.service.engine.messages import without_folder
from foretell.service.errors import LoadFailedError
from foretell.service.settings import VersionChoice

_logger = logging.getLogger(__name__)


class Policy:
    """The operator's choice: every version, or only the pinned or `latest` one and the challenger.

    A pin of the settings wins over one of the repository. Threads may share a policy.

    Args:
        versions: Whether to load `all` versions, or the `latest`.
        pins: Pins of the settings, by name.
    """

    def __init__(
        self, versions: VersionChoice = "all", pins: Mapping[str, str] | None = None
    ) -> None:
        self.only_latest = versions == "latest"
        self._pins = dict(pins or {})
        # Pins and challengers of the repository, of the models that have any.
        self._written: dict[str, Serving] = {}
        # Files that could not be read, and why; logged once.
        self._unread: dict[str, str] = {}

    @property
    def pinned(self) -> Mapping[str, str]:
        """The pins of the settings."""
        return self._pins

    def read(self, folder: Path, name: str) -> None:
        """Read the file of a model; an unreadable file changes nothing."""
        try:
            found = serving.read(folder, name)
        except (BundleError, OSError) as error:
            reason = without_folder(str(error), folder)
            if self._unread.get(name) != reason:
                _logger.error("%s; pin and challenger stay as before", reason)
            self._unread[name] = reason
            return
        self._unread.pop(name, None)
        if found == NOTHING:
            self._written.pop(name, None)
        else:
            self._written[name] = found

    def serving(self, name: str) -> Serving:
        """The pin and the challenger of a model."""
        written, pin = self._written.get(name, NOTHING), self._pins.get(name)
        if pin is None:
            return written
        challenger = written.challenger
        if challenger is not None and challenger.version == pin:
            challenger = None
        return Serving(pin=pin, challenger=challenger)

    def choose(self, name: str, present: Iterable[str]) -> list[str]:
        """The versions to load, out of those present; the first choice comes first."""
        newest_first = sorted(present, key=int, reverse=True)
        if not self.only_latest:
            return newest_first
        chosen = self.serving(name)
        first = newest_first[0] if chosen.pin is None and newest_first else chosen.pin
        wanted = chosen.versions | {first}
        return sorted(
            (version for version in newest_first if version in wanted),
            key=lambda version: version != first,
        )

    def required(self, name: str, present: Iterable[str]) -> list[str]:
        """As `choose`; LoadFailedError if the pinned version alone may answer, and is not there."""
        present, pin = set(present), self.serving(name).pin
        if self.only_latest and pin is not None and pin not in present:
            raise LoadFailedError(f"{name} is pinned to version {pin}, which is not there")
        return self.choose(name, present)

    def may_fall_back(self, name: str) -> bool:
        """Whether an older version may be loaded if the chosen one is refused at the start."""
        return self.only_latest and self.serving(name).pin is None
