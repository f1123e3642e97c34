"""Forecasts and actual values through a server with a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from foretell.service.arrays import MOMENTS, SPACING, Arrays
from foretell.service.engine.ipc import Remember
from tests.service.client import Client
from tests.service.ledger.conftest import (
    CONTEXT,
    HORIZON,
    HOUR,
    START,
    Open,
    counted,
    forecast,
    observe,
    scores,
    series_of,
)

LEVELS = [0.1, 0.5, 0.9]


def replay(
    client: Client, truth: dict[str, NDArray[np.float64]], origins: int, **options: Any
) -> pd.DataFrame:
    """Forecast some series from many origins; the answers, a row a step."""
    rows = []
    for origin in range(origins):
        inputs = [
            series_of(name, values[origin : origin + CONTEXT], origin)
            for name, values in truth.items()
        ]
        for name, content in zip(truth, forecast(client, *inputs, options=options), strict=True):
            for step, mean in enumerate(content["mean_forecast"]):
                row = {
                    "series": name,
                    "step": step + 1,
                    "time": START + (origin + CONTEXT + step) * HOUR,
                    "origin": origin,
                    "mean": np.float32(mean),
                    "naive": np.float32(truth[name][origin + CONTEXT - 1]),
                }
                quantiles = content.get("quantiles", {}).items()
                row |= {f"q{level}": np.float32(values[step]) for level, values in quantiles}
                rows.append(row)
    return pd.DataFrame(rows)


def expected(rows: pd.DataFrame) -> dict[str, Any]:
    """Scores of rows with actual values, independently of the server."""
    known = rows.dropna(subset=["actual"]).astype(
        {name: "float64" for name in rows if name not in ("series", "time")}
    )
    error = known["mean"] - known["actual"]
    naive = (known["naive"] - known["actual"]).abs()
    found: dict[str, Any] = {
        "count": len(known),
        "mae": error.abs().mean(),
        "rmse": float(np.sqrt((error**2).mean())),
        "bias": error.mean(),
        "naive_mae": naive.mean(),
        "mase": error.abs().sum() / naive.sum(),
    }
    for level in LEVELS:
        beyond = known["actual"] - known[f"q{level}"]
        loss = np.maximum(level * beyond, (level - 1) * beyond)
        found[f"pinball {level}"] = loss.mean()
    inside = known["actual"].between(known["q0.1"], known["q0.9"])
    found["coverage"] = inside.mean()
    found["width"] = (known["q0.9"] - known["q0.1"]).mean()
    return found


def flat(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row[name] for name in ("count", "mae", "rmse", "bias", "naive_mae", "mase")}
    found |= {f"pinball {level}": row["quantiles"][str(level)]["pinball"] for level in LEVELS}
    return found | {
        "coverage": row["intervals"]["0.8"]["coverage"],
        "width": row["intervals"]["0.8"]["width"],
    }


def test_scores_equal_an_independent_computation(database: str, opened: Open) -> None:
    rng = np.random.default_rng(0)
    truth = {name: rng.normal(10, 3, 60) for name in ("a", "b")}
    with opened(database) as client:
        rows = replay(client, truth, 30, quantiles=LEVELS)
        # Actual values come in parts, with gaps, some of them corrected later, some of them late.
        for name, values in truth.items():
            gaps = values.copy()
            gaps[::7] = np.nan
            observe(client, name, gaps[:20, None] + 1)
            observe(client, name, gaps[10:40, None], 10)
            observe(client, name, gaps[:20, None])
            times = START + np.arange(40) * HOUR
            values = pd.Series(gaps[:40], index=times)
            at = rows["series"] == name
            rows.loc[at, "actual"] = rows.loc[at, "time"].map(values)
        late = replay(client, truth, 2, quantiles=LEVELS)
        assert len(late) == 2 * 2 * HORIZON

        [total] = scores(client)
        assert flat(total) == pytest.approx(expected(rows), rel=1e-9)
        groups = {
            "step": {int(step): of for step, of in rows.groupby("step")},
            "series": dict(iter(rows.groupby("series"))),
            "day": {str(day): of for day, of in rows.groupby(rows["time"].dt.date)},
            "channel": {"load": rows},
        }
        for by, parts in groups.items():
            found = {row[by]: flat(row) for row in scores(client, f"?by={by}")}
            wanted = {key: expected(of) for key, of in parts.items() if of["actual"].notna().any()}
            assert found.keys() == wanted.keys()
            for key, each in found.items():
                assert each == pytest.approx(wanted[key], rel=1e-9), (by, key)
        of_b = rows[rows["series"] == "b"]
        [row] = scores(client, "?series=b")
        assert flat(row) == pytest.approx(expected(of_b), rel=1e-9)
        second = of_b[of_b["time"].dt.day == 2]
        [row] = scores(client, "?series=b&since=2024-01-02&until=2024-01-02")
        assert flat(row) == pytest.approx(expected(second), rel=1e-9)
        assert scores(client, "?since=2025-01-01") == []
        assert scores(client, model="pair") == []


def test_actual_values_are_idempotent(database: str, opened: Open) -> None:
    values = np.arange(20.0)[:, None]
    with opened(database) as client:
        replay(client, {"a": np.arange(40.0)}, 4)
        assert observe(client, "a", values) == {"new": 20, "changed": 0, "same": 0}
        once = scores(client)
        assert observe(client, "a", values) == {"new": 0, "changed": 0, "same": 20}
        assert scores(client) == once
        values[10] = 100
        assert observe(client, "a", values) == {"new": 0, "changed": 1, "same": 19}
        assert scores(client) != once
        values[10] = 10
        observe(client, "a", values)
        assert scores(client) == once


def test_forecast_after_its_actual_values_is_scored(database: str, opened: Open) -> None:
    with opened(database) as client:
        observe(client, "a", np.arange(40.0)[:, None])
        assert scores(client) == []
        replay(client, {"a": np.arange(40.0)}, 1)
        [row] = scores(client)
        assert row["count"] == HORIZON


def test_same_origin_replaces_until_a_value_is_known(sqlite: str, opened: Open) -> None:
    first, second, third = (np.full(CONTEXT, value) for value in (1.0, 2.0, 3.0))
    with opened(sqlite) as client:
        forecast(client, series_of("a", first))
        forecast(client, series_of("a", second))
        observe(client, "a", np.zeros((1, 1)), CONTEXT)
        forecast(client, series_of("a", third))
        [row] = scores(client)
        assert (row["count"], row["mae"]) == (1, 2.0)


def test_known_values_of_another_series_do_not_keep_a_forecast(database: str, opened: Open) -> None:
    first, second = (np.full(CONTEXT, value) for value in (1.0, 2.0))
    with opened(database) as client:
        forecast(client, series_of("a", first), series_of("b", first))
        observe(client, "b", np.zeros((1, 1)), CONTEXT)
        forecast(client, series_of("a", second), series_of("b", second))
        observe(client, "a", np.zeros((1, 1)), CONTEXT)
        found = {row["series"]: row["mae"] for row in scores(client, "?by=series")}
        assert found == {"a": 2.0, "b": 1.0}


def test_only_named_series_with_times_are_kept(sqlite: str, opened: Open) -> None:
    values = np.arange(float(CONTEXT))
    unnamed, timeless = series_of("a", values), series_of("b", values)
    del unnamed["name"], timeless["start_timestamp"]
    with opened(sqlite) as client:
        found = forecast(client, series_of("c", values), unnamed, timeless)
        assert [each["in_ledger"] for each in found] == [True, False, False]
        assert counted(client, "forecasts", "kept") == 1
        [left_out] = forecast(client, series_of("d", values), options={"ledger": False})
        assert left_out["in_ledger"] is False
        assert counted(client, "forecasts", "kept") == 1


def test_answers_without_a_ledger_do_not_name_it(client: Client) -> None:
    [output] = client.forecast(
        {"model": "calibrated", "inputs": [series_of("a", np.arange(float(CONTEXT)))]}
    ).json()["outputs"]
    assert "in_ledger" not in output["content"][0]
    answer = client.get("/models/calibrated/accuracy")
    assert answer.status_code == 422
    assert "FORETELL_LEDGER" in answer.json()["error"]["message"]


def test_share_of_requests_is_kept(sqlite: str, opened: Open) -> None:
    values = np.arange(float(CONTEXT))
    with opened(sqlite, ledger_share=0.5) as client:
        kept = [
            forecast(client, series_of(f"s{number}", values))[0]["in_ledger"]
            for number in range(60)
        ]
        assert 10 < sum(kept) < 50
        assert counted(client, "forecasts", "kept") == sum(kept)


def test_default_quantiles_are_kept_where_none_were_asked_for(sqlite: str, opened: Open) -> None:
    with opened(sqlite) as client:
        replay(client, {"a": np.arange(40.0)}, 3)
        observe(client, "a", np.arange(20.0)[:, None])
        [row] = scores(client)
        assert [*row["quantiles"]] == ["0.1", "0.5", "0.9"]
        asked = replay(client, {"b": np.arange(40.0)}, 3, quantiles=LEVELS)
        observe(client, "b", np.arange(20.0)[:, None])
        asked["actual"] = (asked["time"] - START) / HOUR
        by_series = scores(client, "?by=series")
        assert flat(by_series[0]) == flat(by_series[1])


def test_series_of_two_channels(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(1).normal(size=(30, 2))
    with opened(sqlite) as client:
        for origin in range(5):
            answer = client.forecast(
                {
                    "model": "pair",
                    "inputs": [series_of("a", truth[origin : origin + CONTEXT], origin)],
                }
            )
            assert answer.status_code == 200
        observe(client, "a", truth[:, :1], channels=("load",))
        [row] = scores(client, "?by=channel", "pair")
        assert (row["channel"], row["count"]) == ("load", 5 * HORIZON)
        observe(client, "a", truth[:, ::-1], channels=("wind", "load"))
        assert [row["channel"] for row in scores(client, "?by=channel", "pair")] == ["load", "wind"]
        [only] = scores(client, "?channel=wind", "pair")
        assert only["count"] == 5 * HORIZON


def test_histories_of_later_requests_are_actual_values(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(2).normal(size=40)
    with opened(sqlite, ledger_learn="requests") as client:
        replay(client, {"a": truth}, 10)
        [row] = scores(client)
        # The last origin's history ends at row 16; each origin before knows as many steps.
        assert row["count"] == sum(min(HORIZON, 9 - origin) for origin in range(9))
        assert counted(client, "actuals", "new") == 9 + CONTEXT
        assert counted(client, "actuals", "changed") == 0


@pytest.mark.parametrize(
    ("learn", "zone", "name", "shape"),
    [
        ("actuals", None, SPACING, (2, 2)),
        ("requests", None, SPACING, (2, 2)),
        ("actuals", "Europe/Berlin", MOMENTS, (2, 1 + 3)),
        ("requests", "Europe/Berlin", MOMENTS, (2, CONTEXT + 3)),
    ],
)
def test_messages_have_the_times_that_the_ledger_reads(
    sqlite: str,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    learn: str,
    zone: str | None,
    name: str,
    shape: tuple[int, int],
) -> None:
    found = []
    with opened(sqlite, ledger_learn=learn) as client:
        ledger = client.ledger
        remember = ledger.remember

        def look(message: Remember, arrays: Arrays) -> None:
            found.append({key: arrays[key].shape for key in arrays.keys() & {MOMENTS, SPACING}})
            remember(message, arrays)

        monkeypatch.setattr(ledger, "remember", look)
        fields = {} if zone is None else {"time_zone": zone}
        inputs = [series_of(each, np.arange(float(CONTEXT)), **fields) for each in ("a", "b")]
        forecast(client, *inputs, options={"horizon": 3})
        assert counted(client, "forecasts", "kept") == 2
    assert found == [{name: shape}]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_of_steps_are_stored(sqlite: str, opened: Open, zone: str | None) -> None:
    fields = {} if zone is None else {"time_zone": zone}
    with opened(sqlite) as client:
        # In Berlin its steps cross the end of summer time.
        values = np.arange(float(CONTEXT))
        first = (np.datetime64("2024-10-26T18:00") - START) // HOUR
        forecast(client, series_of("a", values, int(first), **fields))
        found = client.get("/models/calibrated/trajectories?series=a").json()
    [trajectory] = found["forecasts"]
    end = "2024-10-27T01:00:00" if zone is None else "2024-10-26T23:00:00"
    times = np.datetime64(end) + np.arange(HORIZON + 1) * HOUR
    assert [trajectory["origin"], *trajectory["timestamps"]] == times.astype(str).tolist()


def test_histories_of_requests_leave_known_values_alone(database: str, opened: Open) -> None:
    truth = np.arange(40.0)
    with opened(database, ledger_learn="requests") as client:
        forecast(client, series_of("a", truth[:CONTEXT]))
        observe(client, "a", truth[: CONTEXT + 2, None])
        once = scores(client)
        # What if all values were higher?
        forecast(client, series_of("a", truth[2 : CONTEXT + 2] + 5, 2))
        assert scores(client) == once
        assert counted(client, "actuals", "changed") == 0
        assert counted(client, "actuals", "same") == 2 * CONTEXT
        # A later post still wins.
        written = observe(client, "a", truth[: CONTEXT + 2, None] + 1)
        assert written == {"new": 0, "changed": CONTEXT + 2, "same": 0}


def test_filled_values_are_no_actual_values(sqlite: str, opened: Open) -> None:
    truth = np.arange(40.0)
    with opened(sqlite, ledger_learn="requests") as client:
        forecast(client, series_of("a", truth[:CONTEXT]))
        gaps = series_of("a", truth[2 : 2 + CONTEXT], 2)
        gaps["series"][-1] = None
        forecast(client, gaps, options={"missing": "ffill"})
        [row] = scores(client)
        assert row["count"] == 1
        assert counted(client, "actuals", "new") == CONTEXT + 1


def test_trajectories(database: str, opened: Open) -> None:
    truth = np.arange(40.0)
    with opened(database) as client:
        rows = replay(client, {"a": truth, "b": truth}, 5, quantiles=LEVELS)
        observe(client, "a", truth[:12, None])
        answer = client.get("/models/calibrated/trajectories?series=a&limit=3").json()
        assert [each["origin"] for each in answer["forecasts"]] == [
            str(START + (origin + CONTEXT - 1) * HOUR) + ":00" for origin in (2, 3, 4)
        ]
        last = answer["forecasts"][-1]
        own = rows[(rows["series"] == "a") & (rows["origin"] == 4)]
        assert last["timestamps"] == [f"{time:%Y-%m-%dT%H:%M:%S}" for time in own["time"]]
        assert np.float32(np.ravel(last["mean"])).tolist() == own["mean"].tolist()
        assert np.float32(np.ravel(last["quantiles"]["0.9"])).tolist() == own["q0.9"].tolist()
        actual = answer["actuals"]
        assert actual["timestamps"][-1] == "2024-01-01T11:00:00"
        assert actual["values"] == {"load": [9.0, 10.0, 11.0]}


def test_trajectories_that_do_not_overlap(database: str, opened: Open) -> None:
    truth = np.arange(40.0)
    with opened(database) as client:
        replay(client, {"a": truth, "b": truth}, 11)
        query = "?series=a&overlapping=false&limit="

        def origins(limit: int) -> list[str]:
            answer = client.get(f"/models/calibrated/trajectories{query}{limit}").json()
            return [each["origin"] for each in answer["forecasts"]]

        # The latest one has the origin 10; each has HORIZON steps.
        wanted = [str(START + (origin + CONTEXT - 1) * HOUR) + ":00" for origin in (2, 6, 10)]
        assert origins(9) == wanted
        assert origins(2) == wanted[1:]


def test_cards_say_whether_there_is_a_ledger(sqlite: str, repository: Path, opened: Open) -> None:
    with opened(sqlite) as client:
        assert {card["ledger"] for card in client.get("/models").json()} == {True}
    with Client(repository) as client:
        assert client.get("/models/calibrated").json()["ledger"] is False


def test_deleted_series_is_gone(database: str, opened: Open) -> None:
    truth = np.arange(40.0)
    with opened(database) as client:
        replay(client, {"a": truth, "b": truth}, 3)
        for name in ("a", "b"):
            observe(client, name, truth[:, None])
        [both] = scores(client)
        answer = client.request("DELETE", "/ledger/series?name=a")
        assert (answer.status_code, answer.json()) == (200, {"series": 1})
        [row] = scores(client)
        assert 2 * row["count"] == both["count"]
        assert [row["series"] for row in scores(client, "?by=series")] == ["b"]
        assert client.get("/models/calibrated/trajectories?series=a").json()["forecasts"] == []
        assert client.request("DELETE", "/ledger/series?name=a").json() == {"series": 0}
        # The name can come back.
        replay(client, {"a": truth}, 1)
        observe(client, "a", truth[:, None])
        assert [row["series"] for row in scores(client, "?by=series")] == ["a", "b"]
