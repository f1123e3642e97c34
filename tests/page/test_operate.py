"""The view Operate, and its reading of counters."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from prometheus_client.parser import text_string_to_metric_families

from foretell.bundle import layout
from tests.page.browser import Module, Watch, faults
from tests.page.models import CONTEXT, write_models
from tests.support.process import Server

pytestmark = pytest.mark.browser
Modules = Callable[[str], Module]

SCRAPE = r"""# HELP a_seconds Durations.
# TYPE a_seconds histogram
a_seconds_bucket{route="/forecast",le="0.1"} 2.0
a_seconds_bucket{route="/forecast",le="1.0"} 6
a_seconds_bucket{route="/forecast",le="+Inf"} 8.0
a_seconds_sum{route="/forecast"} 5.5
a_seconds_count{route="/forecast"} 8.0
texts{text="a \"b\" \\ c, {d=\"e\"}"} 1e3 1700000000000
"""


def forecast(server: Server, **changes: Any) -> httpx.Response:
    body = {"model": "patchtst", "inputs": [{"series": [[1.0, 2.0]] * CONTEXT}], **changes}
    return httpx.post(f"{server.url}/forecast", json=body)


def test_scrape_is_parsed(module: Modules) -> None:
    metrics = module("metrics.js")
    entries = "(m, text) => [...m.parseMetrics(text)]"
    found = dict(metrics.evaluate(entries, SCRAPE))
    assert found["texts"] == [{"labels": {"text": 'a "b" \\ c, {d="e"}'}, "value": 1000}]
    code = "(m, text) => m.histogram(m.parseMetrics(text), 'a_seconds').buckets.map(String)"
    assert metrics.evaluate(code, SCRAPE) == ["0.1,2", "1,6", "Infinity,8"]


def test_parsed_metrics_equal_prometheus_client(module: Modules, server: Server) -> None:
    forecast(server)
    text = httpx.get(f"{server.url}/metrics").text
    found = module("metrics.js").evaluate("(m, text) => [...m.parseMetrics(text)]", text)
    read = {
        (name, *sorted(sample["labels"].items())): sample["value"]
        for name, samples in found
        for sample in samples
    }
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    assert read == {(each.name, *sorted(each.labels.items())): each.value for each in samples}


@pytest.mark.parametrize(
    ("level", "value"),
    # 2 of 8 values are below 0.1, 4 between 0.1 and 1, and 2 beyond the last bound.
    [(0.125, 0.05), (0.25, 0.1), (0.5, 0.55), (0.99, 1.0)],
)
def test_quantile_is_linear_within_a_bucket(module: Modules, level: float, value: float) -> None:
    code = """(m, [text, level]) =>
        m.quantile(m.histogram(m.parseMetrics(text), "a_seconds").buckets, level)"""
    assert module("metrics.js").evaluate(code, [SCRAPE, level]) == pytest.approx(value)


def test_quantile_of_an_empty_histogram_is_null(module: Modules) -> None:
    assert module("metrics.js").call("quantile", [], 0.5) is None
    assert module("metrics.js").call("quantile", [[1, 0], [2, 0]], 0.5) is None


def test_rates_and_latency_between_two_scrapes(module: Modules) -> None:
    before = """foretell_requests_total{route="/forecast",model="a",version="1",status="200"} 4
foretell_request_seconds_bucket{route="/forecast",le="0.1"} 4
foretell_request_seconds_bucket{route="/forecast",le="0.3"} 4
foretell_request_seconds_bucket{route="/forecast",le="+Inf"} 4
foretell_request_seconds_sum{route="/forecast"} 0.2
foretell_request_seconds_count{route="/forecast"} 4"""
    after = """foretell_requests_total{route="/forecast",model="a",version="1",status="200"} 14
foretell_requests_total{route="/forecast",model="",version="",status="404"} 2
foretell_requests_total{route="/metrics",model="",version="",status="200"} 9
foretell_request_seconds_bucket{route="/forecast",le="0.1"} 4
foretell_request_seconds_bucket{route="/forecast",le="0.3"} 14
foretell_request_seconds_bucket{route="/forecast",le="+Inf"} 14
foretell_request_seconds_sum{route="/forecast"} 2.2
foretell_request_seconds_count{route="/forecast"} 14
foretell_queue_depth{model="a",version="1"} 3
foretell_queue_depth{model="b",version="1"} 4
foretell_requests_in_flight 3"""
    code = "(m, [one, other]) => m.between(m.ofMetrics(one, 10), m.ofMetrics(other, 14))"
    found = module("readings.js").evaluate(code, [before, after])
    assert (found["requests"], found["errors"], found["queued"]) == (3, 0.5, 7)
    # Without the request for the metrics.
    assert found["inFlight"] == 2
    assert found["latency"] == pytest.approx({"count": 10, "mean": 200, "p50": 200, "p99": 298})
    # A new server counts from 0.
    again = module("readings.js").evaluate(code, [after, before])
    assert (again["requests"], again["latency"]["count"]) == (0, 4)


def test_statistics_and_metrics_give_the_same_reading(module: Modules, server: Server) -> None:
    for _ in range(3):
        assert forecast(server).status_code == 200
    assert forecast(server, options={"horizon": 10**6}).status_code == 422
    metrics = httpx.get(f"{server.url}/metrics").text
    statistics = httpx.get(f"{server.url}/v2/models/stats").json()
    readings = module("readings.js")
    one = readings.call("ofMetrics", metrics, 0)
    other = readings.call("ofStatistics", statistics, 0)
    assert other["requests"] == one["requests"] >= 4
    assert other["errors"] == one["errors"] >= 1
    for name, stage in other["stages"].items():
        if name != "run":
            assert stage["sum"] == pytest.approx(one["stages"][name]["sum"], abs=1e-6)
    assert other["stages"]["run"]["sum"] > 0


def test_versions_are_read_only_without_admin_keys(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/#/operate")
    expect(page.get_by_text("FORETELL_ADMIN_KEYS_FILE")).to_be_visible()
    versions = page.get_by_role("region", name="Versions")
    expect(versions.get_by_role("row", name="patchtst 1")).to_contain_text("serving")
    expect(versions.get_by_role("button")).to_have_count(0)
    forecast(server)
    # Current rates need two scrapes.
    latency = page.locator(".tiles > div", has_text="Latency, median")
    expect(latency.locator("dd").first).to_have_text(re.compile(r"^[\d.]+ ms$"), timeout=15_000)
    expect(page.get_by_role("region", name="Latency by stage")).to_contain_text("assemble")
    assert not faults(page)


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Server]:
    """A server with a key and an admin key; one version does not load."""
    repository = write_models(tmp_path / "repository")
    broken = shutil.copytree(repository / "patchtst" / "1", repository / "patchtst" / "2")
    (broken / layout.WEIGHTS).write_bytes(b"?")
    keys = {"api_keys": "reader", "admin_keys": "admin", "operations_port": 0}
    with Server(repository, tmp_path / "log", threads=1, **keys) as server:
        yield server


# The page must close before its server, because it polls.
def test_versions_are_loaded_and_unloaded(managed: Server, page: Page, watch: Watch) -> None:
    # Requests without a key, with a key that is not an admin key, and to another port.
    watch.allow(401, 403, 404)
    posts: list[str] = []
    page.on("request", lambda one: posts.append(one.url) if one.method == "POST" else None)
    page.goto(f"{managed.url}/#/operate")
    page.get_by_label("Key", exact=True).fill("reader")
    page.get_by_role("button", name="Use key", exact=True).click()
    versions = page.get_by_role("region", name="Versions")
    refused = versions.get_by_role("row", name="patchtst 2")
    expect(refused).to_contain_text("not serving")
    expect(refused).to_contain_text("patchtst/2")
    expect(page.get_by_text("FORETELL_OPERATIONS_PORT")).to_be_visible()

    def unload() -> None:
        versions.get_by_role("button", name="Unload forms 1").click()
        dialog = page.get_by_role("dialog", name="Unload forms 1?")
        dialog.get_by_role("button", name="Unload").click()

    versions.get_by_role("button", name="Unload forms 1").click()
    page.get_by_role("button", name="Cancel").click()
    unload()
    expect(page.get_by_role("alert")).to_contain_text("expected an admin key")
    expect(versions.get_by_role("button")).to_have_count(0)
    page.get_by_role("button", name="Key is set").click()
    page.get_by_label("Key", exact=True).fill("admin")
    page.get_by_role("button", name="Use key", exact=True).click()
    unload()
    expect(page.get_by_text("Unloaded forms 1.")).to_be_visible()
    changes = [url for url in posts if url.endswith("load")]
    assert changes == [f"{managed.url}/v2/repository/models/forms/unload"] * 2
    headers = {"X-API-Key": "reader"}
    entries = httpx.post(f"{managed.url}/v2/repository/index", headers=headers).json()
    assert {"READY"} != {one["state"] for one in entries if one["name"] == "forms"}
    # It can be loaded again before its last requests are finished.
    versions.get_by_role("button", name="Load forms 1", exact=True).click()
    dialog = page.get_by_role("dialog", name="Load forms 1?")
    dialog.get_by_role("button", name="Load").click()
    expect(page.get_by_text("Loaded forms 1.")).to_be_visible()
    expect(versions.get_by_role("button", name="Unload forms 1")).to_be_visible()
