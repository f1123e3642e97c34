"""What changes in the repository's folder, and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from foretell.bundle.errors import BundleError
from foretell.service.errors import NotReadyError, ServiceError
from foretell.service.versions.catalogue import Catalogue
from foretell.service.versions.policy import Policy
from foretell.service.versions.rollout import Rollout
from foretell.service.versions.state import Desired, State
from foretell.service.versions.table import Table

_logger = logging.getLogger(__name__)


class Lookout:
    """Acts on what has changed since any process looked, and on nothing else.

    Bundles that came or were changed are loaded, those that went are unloaded. So one that was
    refused is not tried again until it changes, and one that was unloaded on request stays so.
    Only what a file system would not do is tried again the next time.

    Args:
        catalogue: The bundles on disk.
        table: What this process has.
        policy: Which versions are loaded.
        rollout: Loads and unloads them.
        state: Where the processes agree on what was seen.
        load: Loads what the policy chooses of a model, in place of its other versions.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        table: Table,
        policy: Policy,
        rollout: Rollout,
        state: State,
        load: Callable[[str], None],
    ) -> None:
        self._catalogue = catalogue
        self._table = table
        self._policy = policy
        self._rollout = rollout
        self._state = state
        self._load = load
        # What was known of the models whose news could not be acted on.
        self._behind: dict[str, Mapping[str, str]] = {}

    def look(self) -> None:
        """Look once.

        Raises:
            BundleError: the folder is not there, or is empty all of a sudden.
            OSError: it cannot be read.
        """
        before = now = Desired()

        def look(desired: Desired) -> Desired:
            nonlocal before, now
            before, now = desired, desired.having_seen(self._catalogue.fingerprints())
            if before.seen and not now.seen:
                raise BundleError(f"{self._catalogue.folder}: is empty; what is loaded stays")
            return now

        # One process at a time, or what an earlier look has found would be news again.
        self._state.update(look)
        behind, self._behind = self._behind, {}
        known = {**before.seen, **behind}
        for name in sorted(known.keys() | now.seen.keys()):
            seen, present = known.get(name, {}), now.seen.get(name, {})
            if seen == present:
                continue
            try:
                self._catch_up(name, seen, present)
            except OSError as error:
                # The others' news would be lost with it.
                self._behind[name] = seen
                if name not in behind:
                    _logger.error("what is new of %s is tried again: %s", name, error)

    def _catch_up(self, name: str, seen: Mapping[str, str], present: Mapping[str, str]) -> None:
        gone = [version for version in seen if version not in present]
        chosen = self._policy.choose(name, present)
        news = [version for version in chosen if present[version] != seen.get(version)]
        missed = set(gone) & set(self._table.loaded(name))
        try:
            if self._policy.only_latest and chosen and (news or missed):
                self._load(name)
            elif news:
                self._rollout.load(name, news)
        except ServiceError as error:
            _logger.warning("not all that is new of %s was loaded: %s", name, error)
        if gone:
            # If this server is stopping, the others have been told nevertheless.
            with suppress(NotReadyError):
                self._rollout.unload(name, gone)
