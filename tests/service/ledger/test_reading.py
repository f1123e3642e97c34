"""Questions to the ledger: which series they mean, and how much they answer."""

from __future__ import annotations

from typing import Any, get_args

import httpx
import numpy as np
import pytest

from foretell.client import ledger as client_ledger
from foretell.service.ledger import reading, scores, trajectories
from tests.service.client import Client
from tests.service.ledger.conftest import Open, forecast, observe, series_of, settle
from tests.service.ledger.conftest import scores as scores_of

KEYS = {"admin_keys": "a", "api_keys": "b shop, c dock", "ledger_keys": "b shop, c dock"}


def fill(client: Client, truth: dict[str, Any]) -> None:
    """Forecasts of a series of each key, and its actual values."""
    for (key, namespace), values in truth.items():
        body = {"model": "calibrated", "inputs": [series_of("a", values[:8])]}
        answer = client.forecast(body, **auth(key))
        assert answer.status_code == 200, answer.text
        settle(client)
        observe(client, "a", values[:, None], namespace=namespace)


def auth(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def tenants(sqlite: str, opened: Open) -> Any:
    with opened(sqlite, **KEYS) as client:
        fill(client, {("b", "shop"): np.arange(12.0), ("c", "dock"): np.arange(12.0) + 100})
        yield client


def ask(client: Client, path: str, key: str) -> httpx.Response:
    return client.request("GET", f"/models/calibrated/{path}", headers=auth(key))


def test_rows_by_series_have_their_namespaces(tenants: Client) -> None:
    rows = ask(tenants, "accuracy?by=series", "a").json()["rows"]
    found = [(row["series"], row["namespace"], row["frequency"]) for row in rows]
    assert found == [("a", "dock", "h"), ("a", "shop", "h")]
    [own] = ask(tenants, "accuracy?by=series", "b").json()["rows"]
    assert (own["series"], own["namespace"]) == ("a", "shop")


@pytest.mark.parametrize("path", ["trajectories?series=a", "accuracy?series=a"])
def test_series_of_two_tenants_are_never_mixed(tenants: Client, path: str) -> None:
    answer = ask(tenants, path, "a")
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["param"] == "namespace"
    assert error["message"] == (
        "several series have the name 'a'; choose one by namespace: 'dock', 'shop'"
    )
    assert ask(tenants, path + "&namespace=dock", "a").status_code == 200
    assert ask(tenants, path, "b").status_code == 200


def test_trajectories_are_of_one_namespace(tenants: Client) -> None:
    answer = ask(tenants, "trajectories?series=a&namespace=dock&frequency=h", "a").json()
    assert (answer["namespace"], answer["frequency"]) == ("dock", "h")
    assert len(answer["forecasts"]) == 1
    assert min(answer["actuals"]["values"]["load"]) == 107
    other = ask(tenants, "trajectories?series=a&namespace=dock&frequency=D", "a").json()
    assert (other["namespace"], other["forecasts"]) == (None, [])


def test_trajectories_of_a_channel(database: str, opened: Open) -> None:
    truth = np.stack([np.arange(14.0), 10 * np.arange(14.0)], axis=1)
    with opened(database) as client:
        options = {"quantiles": [0.1, 0.9]}
        forecast(client, series_of("p", truth[:8]), model="pair", options=options)
        # One time has a value of the other channel alone.
        truth[9, 1] = np.nan
        observe(client, "p", truth, channels=("load", "wind"))
        path = "/models/pair/trajectories?series=p"
        both, one = client.get(path).json(), client.get(path + "&channel=wind").json()
        [whole], [own] = both["forecasts"], one["forecasts"]
        assert own["channels"] == ["wind"]
        for name in ("mean", "naive"):
            assert own[name] == [[row[1]] for row in whole[name]]
        assert own["quantiles"] == {
            level: [[row[1]] for row in rows] for level, rows in whole["quantiles"].items()
        }
        assert one["actuals"]["values"] == {"wind": [70, 80, 100, 110]}
        assert len(both["actuals"]["timestamps"]) == 5
        assert client.get(path + "&channel=sun").json()["forecasts"] == []


def test_answers_with_forecasts_are_bounded(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.arange(40.0)
    with opened(sqlite) as client:
        for origin in range(3):
            forecast(client, series_of("a", truth[origin : origin + 8], origin))
        observe(client, "a", truth[:, None])
        # Three forecasts of 4 steps, with mean, naive and three quantiles; 7 actual values.
        path = "/models/calibrated/trajectories?series=a"
        monkeypatch.setattr(trajectories, "MOST_VALUES", 3 * 4 * 5 + 7)
        assert len(client.get(path).json()["forecasts"]) == 3
        monkeypatch.setattr(trajectories, "MOST_VALUES", 3 * 4 * 5 + 6)
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, "limit")
        assert "choose a channel, a smaller limit, or days" in answer.json()["error"]["message"]
        assert len(client.get(path + "&limit=2").json()["forecasts"]) == 2


def test_sums_of_series_are_reduced_at_once(
    database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.random.default_rng(0).normal(size=60)
    with opened(database) as client:
        for origin in range(30):
            inputs = [series_of(name, truth[origin : origin + 8], origin) for name in "ab"]
            forecast(client, *inputs)
        for name in "ab":
            observe(client, name, truth[:, None])
        alone = {name: scores_of(client, f"?series={name}") for name in "ab"}
        kept: list[scores.Scores] = []
        monkeypatch.setattr(
            reading, "Scores", lambda *given: kept.append(scores.Scores(*given)) or kept[-1]
        )
        rows = scores_of(client, "?by=series")
        for row in rows:
            [own] = alone[row["series"]]
            for name in ("count", "mae", "bias", "mase"):
                assert row[name] == pytest.approx(own[name])
        groups = kept[0]._groups
        assert len(groups) == 2
        assert {sums.ndim for group in groups.values() for sums in group.values()} == {1}


def test_a_limit_keeps_the_newest_days(sqlite: str, opened: Open) -> None:
    truth = np.arange(120.0)
    with opened(sqlite) as client:
        for origin in range(0, 96, 4):
            forecast(client, series_of("a", truth[origin : origin + 8], origin))
        observe(client, "a", truth[:, None])
        every = [row["day"] for row in scores_of(client, "?by=day")]
        assert len(every) == 5
        assert [row["day"] for row in scores_of(client, "?by=day&limit=2")] == every[-2:]


@pytest.mark.parametrize("path", ["accuracy", "trajectories?series=a", "compare?a=1&b=2"])
def test_unknown_models_are_refused(sqlite: str, opened: Open, path: str) -> None:
    with opened(sqlite) as client:
        answer = client.get(f"/models/calibratd/{path}")
        assert answer.status_code == 404, answer.text
        error = answer.json()["error"]
        assert error["type"] == "unknown_model"
        assert "did you mean 'calibrated'" in error["message"]
        assert client.get(f"/models/calibrated/{path}").status_code == 200


def test_client_and_server_have_the_same_groups() -> None:
    assert {*get_args(client_ledger.By)} == {*get_args(scores.By)}
