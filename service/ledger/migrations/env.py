"""Alembic's environment; the connection comes from `upgrade`."""

from __future__ import annotations

from alembic import context

from foretell.service.ledger.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
