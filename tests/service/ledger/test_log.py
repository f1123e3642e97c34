"""Names, values and passwords stay out of messages and logs."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy.exc import SQLAlchemyError

from foretell.service.ledger.faults import log_error
from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import SERIES

_logger = logging.getLogger(__name__)


def test_errors_of_the_database_are_logged_without_stored_data(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(database)
    store.open()
    row = {"namespace": "tenant-7", "name": "customer-42", "frequency": None}
    with pytest.raises(SQLAlchemyError) as caught, store.write() as connection:
        connection.execute(SERIES.insert(), [row])
    store.close()
    log_error(_logger, "nothing was written", caught.value)
    assert "nothing was written: " in caplog.text
    assert "frequency" in caplog.text
    assert "tenant-7" not in caplog.text
    assert "customer-42" not in caplog.text


def test_parameters_are_not_in_errors(sqlite: str) -> None:
    store = Store(sqlite)
    store.open()
    with pytest.raises(SQLAlchemyError) as caught, store.write() as connection:
        connection.execute(SERIES.insert(), [{"namespace": "tenant-7", "name": "a"}])
    store.close()
    assert "tenant-7" not in str(caught.value)


def test_own_errors_are_logged_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("a fault")
    except ValueError as error:
        log_error(_logger, "nothing was written", error)
    assert "Traceback" in caplog.text
    assert "a fault" in caplog.text


@pytest.mark.parametrize(
    "options", ["password=secret", "sslpassword=secret", "host=db&password=secret", "any=secret"]
)
def test_secrets_in_options_of_the_url_are_not_shown(options: str) -> None:
    store = Store(f"postgresql://me@h/ledger?{options}")
    assert "secret" not in store.place
    assert store.place.startswith("postgresql+psycopg://me@h/ledger")
    assert ("host=db" in store.place) == ("host=db" in options)
