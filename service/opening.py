"""Opens the parts of a server that most servers lack, and whose libraries are extras."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from foretell.service.engine.engine import Ledger
from foretell.service.engine.repository import Repository
from foretell.service.errors import StartError
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings


def open_ledger(settings: Settings, repository: Repository, metrics: Metrics) -> Ledger | None:
    """Open the ledger of the settings, if any; StartError if its database cannot be opened."""
    if settings.ledger is None:
        return None
    try:
        module: Any = import_module("foretell.service.ledger.ledger")
    except ModuleNotFoundError as error:
        raise StartError(
            f"FORETELL_LEDGER: {error.name} is not installed; install foretell with the extra "
            "ledger"
        ) from None
    ledger: Ledger = module.DatabaseLedger.open(
        settings, lambda: repository.versions.registry, metrics
    )
    return ledger


def open_agents(settings: Settings) -> Any:  # noqa: ANN401 - imported on use
    """The class `mcp.server.McpServer` if the settings have tools for agents, else None."""
    if not settings.mcp:
        return None
    module: Any = import_module("foretell.service.mcp.server")
    return module.McpServer
