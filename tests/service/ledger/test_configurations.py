"""Clients choose levels of quantiles: a version may have any number of configurations."""

from __future__ import annotations

import numpy as np
from sqlalchemy import func, select, text

from foretell.service.ledger.tables import CONFIGURATIONS
from tests.service.ledger.conftest import CONTEXT, Open, forecast, observe, scores, series_of

# More than a statement may have parameters.
MANY = text(
    "INSERT INTO configurations (version, steps, levels, calibration) "
    "WITH RECURSIVE counted (number) AS "
    "(SELECT 1 UNION ALL SELECT number + 1 FROM counted WHERE number < 70000) "
    "SELECT (SELECT min(id) FROM versions), 4, '[0.' || (1000000 + number) || ']', 'stored' "
    "FROM counted"
)


def test_reads_of_a_version_with_many_configurations(database: str, opened: Open) -> None:
    values = np.arange(CONTEXT + 1.0)
    with opened(database) as client:
        forecast(client, series_of("a", values[:CONTEXT]))
        observe(client, "a", values[:, None])
        with client.ledger._store.write() as connection:
            connection.execute(MANY)
        for query in ("", "?series=a", "?by=series", "?by=day", "?channel=load", "?version=1"):
            [row] = scores(client, query)
            assert row["count"] == 1
        for query in ("", "&channel=load", "&calibration=stored"):
            answer = client.get(f"/models/calibrated/trajectories?series=a{query}")
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["forecasts"]) == 1


def test_levels_that_scores_do_not_tell_apart_have_one_configuration(
    sqlite: str, opened: Open
) -> None:
    values = np.zeros(CONTEXT)
    with opened(sqlite) as client:
        for number in range(3):
            options = {"quantiles": [0.3 + number * 1e-11]}
            forecast(client, series_of(f"s{number}", values), options=options)
        with client.ledger._store.read() as connection:
            counted = connection.execute(select(func.count()).select_from(CONFIGURATIONS)).scalar()
        assert counted == 1
