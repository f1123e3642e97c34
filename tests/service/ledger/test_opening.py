"""Databases that cannot be opened, and their tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic import op
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from foretell.service.errors import StartError
from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import METADATA
from tests.service.ledger.conftest import Open
from tests.support.postgresql import Server


def refusal(url: str) -> str:
    """The message of a database that cannot be opened."""
    with pytest.raises(StartError) as caught:
        Store(url).open()
    message = str(caught.value)
    assert message.startswith("FORETELL_LEDGER: ")
    return message


def test_tables_are_those_of_the_migrations(database: str) -> None:
    store = Store(database)
    store.open()
    with store.write() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        if store.is_sqlite:
            # The comparison does not see this one.
            made = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"
            found = {*connection.execute(text(made)).scalars()}
            options = {each.name: each.dialect_options["sqlite"] for each in METADATA.sorted_tables}
            marked = {name for name, own in options.items() if own["autoincrement"]}
            assert found == marked
            assert "series" in found
    store.close()


def test_tables_stay_at_the_next_start(database: str, opened: Open) -> None:
    for _ in range(2):
        with opened(database) as client:
            assert client.get("/models/calibrated/accuracy").status_code == 200


def test_database_of_a_newer_version(database: str) -> None:
    store = Store(database)
    store.open()
    with store.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    assert "another version of foretell" in refusal(database)


def test_half_of_a_migration_is_undone(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_index, made = op.create_index, []

    def fail(name: str, *arguments: object, **options: object) -> None:
        if name == "sums_day":
            raise OSError("no space left")
        made.append(name)
        create_index(name, *arguments, **options)

    monkeypatch.setattr(op, "create_index", fail)
    assert "no space left" in refusal(database)
    assert made
    monkeypatch.undo()
    store = Store(database)
    with store.read() as connection:
        assert inspect(connection).get_table_names() == []
    store.open()
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "ledger.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite+aiosqlite:///ledger.db",
        "mysql://root@localhost/ledger",
        "postgres//localhost",
        "nosuch://x",
        "",
    ],
)
def test_urls_of_other_kinds(url: str) -> None:
    assert "sqlite:///PATH" in refusal(url)


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("This is no database, and it is longer than a header of one." * 20)
    assert "not a database" in refusal(f"sqlite:///{file}")
    assert "cannot be opened" in refusal(f"sqlite:///{file}/ledger.db")
    assert "cannot be opened" in refusal(f"sqlite:///{tmp_path}")
    assert "cannot be opened" in refusal("sqlite:////proc/ledger.db")


def test_password_is_not_in_messages(tmp_path: Path) -> None:
    message = refusal(f"postgresql://me:secret@/ledger?host={tmp_path}")
    assert "secret" not in message
    assert str(tmp_path) in message


def test_unknown_database(server: Server) -> None:
    assert "does not exist" in refusal(server.url.replace("/postgres?", "/missing?"))


def test_folder_of_the_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "ledger.db"
    store = Store(f"sqlite:///{path}")
    store.open()
    store.close()
    assert path.exists()


def test_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "extra postgresql" in refusal("postgresql://localhost/ledger")


@pytest.mark.parametrize("library", ["sqlalchemy", "alembic"])
def test_missing_library(library: str, sqlite: str) -> None:
    code = f"""
import sys
sys.modules[{library!r}] = None
from foretell.service.errors import StartError
from foretell.service.opening import open_ledger
from foretell.service.settings import Settings
try:
    open_ledger(Settings(models='/', ledger={sqlite!r}), None, None)
except StartError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"FORETELL_LEDGER: {library} is not installed")
    assert "the extra ledger" in done.stdout
