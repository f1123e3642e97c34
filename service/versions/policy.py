"""Which versions of a model are loaded, and which of them its name means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foretell.service.settings import VersionChoice


class Policy:
    """The operator's choice of versions.

    Args:
        versions: `all` loads every version; `latest` the newest of each model, or the pinned one.
        pins: The version that a name means, for models where that is not the newest one.
    """

    def __init__(
        self, versions: VersionChoice = "all", pins: Mapping[str, str] | None = None
    ) -> None:
        self.pins = dict(pins or {})
        self.only_latest = versions == "latest"

    def choose(self, name: str, present: Iterable[str]) -> list[str]:
        """The versions to load of those present, the first choice first."""
        newest_first = sorted(present, key=int, reverse=True)
        if not self.only_latest:
            return newest_first
        if name in self.pins:
            return [version for version in newest_first if version == self.pins[name]]
        return newest_first[:1]

    def may_fall_back(self, name: str) -> bool:
        """Whether an older version may be loaded where the chosen one is refused at the start."""
        return self.only_latest and name not in self.pins

    def default(self, name: str, loaded: Iterable[str]) -> str | None:
        """The version that the name means; None if that one is not loaded."""
        if name in self.pins:
            return self.pins[name] if self.pins[name] in loaded else None
        return max(loaded, key=int, default=None)
