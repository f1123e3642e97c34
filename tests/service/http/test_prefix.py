from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.service.http.static import Pages
from foretell.service.settings import OWN_PATHS
from tests.service.client import Client

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}
HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def behind(models: Path) -> Iterator[Client]:
    with Client(models, root_path="/a/part/", api_keys="one") as client:
        yield client


@pytest.mark.parametrize("prefix", ["", "/a/part"])
def test_both_kinds_of_proxies_are_understood(behind: Client, prefix: str) -> None:
    assert behind.get(f"{prefix}/healthz").status_code == 200
    assert behind.request("GET", f"{prefix}/", headers=HTML).text.startswith("<!doctype html>")
    for path in ("/docs", "/openapi.json", "/page/app.js"):
        assert behind.get(prefix + path).status_code == 200, path
    # What needs a key needs it there, too.
    assert behind.get(f"{prefix}/models").status_code == 401
    path, headers = f"{prefix}/forecast", {"X-API-Key": "one"}
    assert behind.request("POST", path, json=BODY).status_code == 401
    assert behind.request("POST", path, json=BODY, headers=headers).status_code == 200
    answer = behind.request("GET", f"{prefix}/v2/no", headers=headers)
    assert isinstance(answer.json()["error"], str)


def test_metrics_know_no_prefix(behind: Client) -> None:
    behind.get("/a/part/page/app.js")
    text = behind.get("/a/part/metrics").text
    assert 'route="/page/{path:path}",status="200"' in text
    assert "/a/part" not in text


def test_the_page_has_a_slash_at_its_end(behind: Client) -> None:
    answer = behind.get("/a/part")
    assert (answer.status_code, answer.headers["location"]) == (308, "/a/part/")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/a/partial", "/a/partial"),
        ("/a", "/a"),
        ("/b/a/part/healthz", "/b/a/part/healthz"),
        ("/a/part/a/part/healthz", "/a/part/healthz"),
    ],
)
def test_what_only_looks_like_it_is_no_prefix(behind: Client, path: str, named: str) -> None:
    answer = behind.request("GET", path, headers={"X-API-Key": "one"})
    assert answer.status_code == 404
    assert f"GET {named};" in answer.text


def test_links_begin_with_it(behind: Client, client: Client) -> None:
    assert behind.get("/").json()["links"]["models"] == "/a/part/models"
    assert behind.get("/openapi.json").json()["servers"] == [{"url": "/a/part"}]
    assert client.get("/").json()["links"]["models"] == "/models"
    assert "servers" not in client.get("/openapi.json").json()


def test_own_paths_are_those_of_the_routes(client: Client) -> None:
    # The nixtla client's are in no document: what they take is Nixtla's to say.
    unlisted = "/nixtla/model_params"
    assert client.get(unlisted).status_code != 404
    shown = {"/openapi.json", *client.app.openapi()["paths"], *Pages().paths, unlisted}
    assert {path.split("/")[1] for path in shown} - {""} == OWN_PATHS
