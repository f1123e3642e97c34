"""Brings the database of a ledger to the tables of this version."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from foretell.service.errors import StartError


def upgrade(connection: Connection) -> None:
    """Run the missing migrations.

    Raises:
        StartError: the database belongs to a newer version of foretell.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        newest = ScriptDirectory.from_config(config).get_current_head()
        raise StartError(
            f"FORETELL_LEDGER: the database was made by another version of foretell, and this one "
            f"knows it up to migration {newest}: {error}"
        ) from None
