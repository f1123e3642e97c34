"""Versions that a mirror cannot fetch, which are refused until it can."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from foretell.service.engine.versions import Versions
from foretell.service.metrics import Metrics
from foretell.storage.mirror import Mirror

_logger = logging.getLogger(__name__)


class Unfetched:
    """The versions that a mirror, if there is one, could not fetch; for one thread at a time."""

    def __init__(self, mirror: Mirror | None, versions: Versions, metrics: Metrics) -> None:
        self._mirror = mirror
        self._versions = versions
        self._metrics = metrics
        # Reasons by name and version.
        self.failures: Mapping[tuple[str, str], str] = {}
        # Reasons why the versions of a model could not be listed or read.
        self._unlisted: dict[str, str] = {}

    def note(self, *, wanted: bool = False) -> None:
        """Refuse versions that could not be fetched; take the refusal back of those that now can.

        With `wanted` the server is not ready without them.
        """
        if self._mirror is None:
            return
        for name, reason in self._mirror.unlisted.items():
            if self._unlisted.get(name) != reason:
                _logger.error("%s cannot be read; its fetched versions stay: %s", name, reason)
        self._unlisted = dict(self._mirror.unlisted)
        before, self.failures = self.failures, self._mirror.failures
        for (name, version), reason in before.items():
            state = self._versions.registry.get(name, version)
            if (name, version) not in self.failures and state.refused == reason:
                self._versions.clear_refusal(name, version)
        for (name, version), reason in self.failures.items():
            state = self._versions.registry.get(name, version)
            refused = replace(state, refused=reason, wanted=state.wanted or wanted)
            self._versions.put(name, version, refused)
            if before.get((name, version)) != reason:
                _logger.error("refused %s@%s: %s", name, version, reason)
                self._metrics.refused(name, version)
