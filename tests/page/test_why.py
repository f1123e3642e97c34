"""The view Why, and maps of attention of every form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.browser import Module, Watch, faults
from tests.page.models import CONTEXT, SPECS
from tests.support.bundles import Spec, channel_stage, lag_stage, write_bundle
from tests.support.process import Server

pytestmark = pytest.mark.browser
Modules = Callable[[str], Module]

LENGTHS = [
    (24, "h", "24 steps = 1 day"),
    (168, "h", "168 steps = 1 week"),
    (36, "h", "36 steps = 1 day 12 hours"),
    (1, "h", "1 step = 1 hour"),
    (0, "h", "0 steps = the same time"),
    (96, "15min", "96 steps = 1 day"),
    (90, "s", "90 steps = 1 minute 30 seconds"),
    (150, "10ms", "150 steps = 1 second 500 milliseconds"),
    (3, "250us", "3 steps = 750 microseconds"),
    (7, "D", "7 steps = 1 week"),
    (9, "D", "9 steps = 9 days"),
    (365, "D", "365 steps = 365 days, about 1 year"),
    (52, "W-SUN", "52 steps = 52 weeks, about 1 year"),
    (5, "B", "5 steps = 1 week"),
    (3, "B", "3 steps = 3 business days"),
    (18, "MS", "18 steps = 1 year 6 months"),
    (4, "QS-JAN", "4 steps = 1 year"),
    (4, "BQE-DEC", "4 steps = 1 year"),
    (5, "WOM-3FRI", "5 steps = 5 months"),
    (4, "SMS-15", "4 steps = 2 months"),
    (3, "SME-15", "3 steps = 3 half months"),
    (3, "YE-DEC", "3 steps = 3 years"),
    (5, None, "5 steps"),
]
CYCLES = {
    "h": 24,
    "15min": 96,
    "D": 7,
    "B": 5,
    "MS": 12,
    "QE-DEC": 4,
    "W-MON": 1,
    "s": 60,
    "BME": 12,
    "SMS-15": 24,
}
DAYS = [f"2024-03-0{day}T00:00:00" for day in range(1, 9)]
# Patches of two days, one day apart.
PATCHES = [{"start": DAYS[day], "end": DAYS[day + 1]} for day in range(3)]


def attention(server: Server, model: str, **options: Any) -> Any:
    body = httpx.get(f"{server.url}/models/{model}/example").json()["request"]
    body["options"] = {"attention": options or {"heads": "mean"}}
    answer = httpx.post(f"{server.url}/forecast", json=body).raise_for_status().json()
    return answer["outputs"][0]["content"][0]["attention"]


def matrix_of(module: Modules, stage: Any, **choice: int) -> tuple[np.ndarray, Any]:
    code = """(m, [stage, choice]) => {
        const found = m.matrixOf(stage, choice);
        return { ...found, values: [...found.values] };
    }"""
    found = module("evidence.js").evaluate(code, [stage, choice])
    shape = len(found["rows"]), len(found["columns"])
    return np.reshape(found.pop("values"), shape), found


def test_periods_in_words(module: Modules) -> None:
    words = module("periods.js").evaluate(
        "(m, all) => all.map(([steps, frequency]) => m.inWords(steps, frequency))",
        [length[:2] for length in LENGTHS],
    )
    assert words == [expected for *_, expected in LENGTHS]
    cycles = module("periods.js").evaluate("(m, all) => all.map(m.cycleOf)", [*CYCLES])
    assert cycles == [*CYCLES.values()]


def test_dense_map_has_the_weights_of_the_answer(module: Modules, server: Server) -> None:
    (stage,) = attention(server, "patchtst")
    weights, found = matrix_of(module, stage, channel=1)
    np.testing.assert_array_equal(weights, stage["weights"][1])
    assert (found["rows"], found["largest"]) == (stage["query"], weights.max())
    (stage,) = attention(server, "patchtst", heads=[1])
    weights, _ = matrix_of(module, stage, channel=1)
    np.testing.assert_array_equal(weights, stage["weights"][1][0])


def test_sparse_map_has_the_weights_at_their_keys(module: Modules, server: Server) -> None:
    (stage,) = attention(server, "forms", stages=["routing.1"], heads=[1])
    weights, _ = matrix_of(module, stage)
    expected = np.zeros((CONTEXT, 4))
    for query, (keys, kept) in enumerate(zip(stage["keys"][0], stage["weights"][0], strict=True)):
        for key, weight in zip(keys, kept, strict=True):
            if key >= 0:
                expected[query, key] += weight
    np.testing.assert_array_equal(weights, expected)
    assert expected.any(axis=1).all()


def test_absent_keys_get_no_weight(module: Modules) -> None:
    stage = {
        "axes": ["head", "query", "kept"],
        "weights": [[[0.5, 0.5], [0.25, 0.75], [0.25, 0.75]]],
        # The last query has the same key twice.
        "keys": [[[0, -1], [-1, 1], [1, 1]]],
        "query": [0, 1, 2],
        "key": [0, 1],
    }
    weights, _ = matrix_of(module, stage)
    np.testing.assert_array_equal(weights, [[0.5, 0], [0, 0.75], [0, 1]])


def test_padding_is_left_out_and_counted(module: Modules) -> None:
    stage = {
        "axes": ["query", "key"],
        "weights": [[0.5, 0.25, 0.25], [0, 0.5, 0.5], [1, 0, 0]],
        "query": ["a", "b", None],
        "key": ["a", "b", None],
    }
    weights, found = matrix_of(module, stage)
    np.testing.assert_array_equal(weights, [[0.5, 0.25], [0, 0.5]])
    assert found["elsewhere"] == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (PATCHES, "patches"),
        (["load", "wind"], "channels"),
        (DAYS, "steps"),
        ([-2, -1, 0], "steps"),
        ([0, 1], "positions"),
    ],
)
def test_kind_of_an_axis(module: Modules, labels: list[Any], kind: str) -> None:
    assert module("evidence.js").call("axisOf", labels, ["wind", "load"]) == kind


MARKS = """(m, [matrix, times, row]) => {
    const placeOf = m.placing(2, times, Date.parse);
    const values = Float64Array.from(matrix.values);
    return m.marksOf({ ...matrix, values }, row, placeOf);
}"""


def test_marks_are_rows_of_the_series(module: Modules) -> None:
    matrix = {"columns": PATCHES, "values": [0, 0, 0, 0.5, 0.5, 0]}
    # Half the weight is on days 0 and 1, half on 1 and 2.
    found = module("evidence.js").evaluate(MARKS, [matrix, DAYS[:4], 1])
    assert found == [[0, 0, 0.5], [1, 1, 1], [2, 2, 0.5]]
    assert module("evidence.js").evaluate(MARKS, [matrix, DAYS[:4], 0]) == []
    # Without times columns are numbers of steps: 0 is the first step of the forecast.
    matrix = {"columns": [-2, -1, 0], "values": [0.25, 0.25, 0.5]}
    assert module("evidence.js").evaluate(MARKS, [matrix, [], 0]) == [[0, 1, 0.5], [2, 2, 1]]
    matrix = {"columns": ["a", None], "values": [1, 0]}
    assert module("evidence.js").evaluate(MARKS, [matrix, [], 0]) == []


def test_strongest_weights_come_first(module: Modules) -> None:
    code = """(m, [count, from]) => {
        const values = [0, 3, 1, 5, 3, 0, 2, 7, 5];
        const found = m.strongest({ values, columns: Array(3) }, count, from);
        return found.map(({ row, column, weight }) => [row, column, weight]);
    }"""
    evidence = module("evidence.js")
    order = [[2, 1, 7], [1, 0, 5], [2, 2, 5], [0, 1, 3], [1, 1, 3], [2, 0, 2], [0, 2, 1]]
    assert evidence.evaluate(code, [4, 0]) == order[:4]
    assert evidence.evaluate(code, [20, -1]) == order
    assert evidence.evaluate(code, [2, 2]) == [[2, 1, 7], [2, 2, 5]]


def test_pooling_keeps_the_largest_weights(module: Modules) -> None:
    code = """(m, most) => {
        const values = Float64Array.from(Array(35).keys(), (cell) => (cell === 33 ? 99 : cell));
        const found = m.pooled({ values, rows: Array(5), columns: Array(7) }, most);
        return [found.rows, found.columns, ...found.values];
    }"""
    rows, columns, *values = module("evidence.js").evaluate(code, 3)
    assert (rows, columns, len(values)) == (3, 3, 9)
    assert values[8] == 99
    assert module("evidence.js").evaluate(code, 9)[:2] == [5, 7]


def test_lags_are_sorted_by_weight(module: Modules) -> None:
    stage = {
        "query": PATCHES,
        "key": PATCHES,
        "lags": [1, 2, 0],
        "lag_weights": [0.2, 0.5, 0.3],
        "correlation": [3, 1, 2],
    }
    code = "(m, [stage, times]) => m.lagsOf(stage, m.placing(8, times, Date.parse))"
    found = module("evidence.js").evaluate(code, [stage, DAYS])
    assert (found["stride"], found["offset"]) == (1, 0)
    assert [(one["lag"], one["around"], one["correlation"]) for one in found["lags"]] == [
        (2, 1, 2),
        (0, 0, 3),
        (1, 2, 1),
    ]
    # Queries begin two days after keys.
    later = [{"start": DAYS[day + 2], "end": DAYS[day + 3]} for day in range(3)]
    found = module("evidence.js").evaluate(code, [stage | {"query": later}, DAYS])
    assert found["offset"] == 2
    assert [one["around"] for one in found["lags"]] == [0, 2, 1]


def test_shades_have_equal_steps_of_lightness(module: Modules) -> None:
    for dark, way in ((False, -1), (True, 1)):
        code = "(m, dark) => [0, 0.25, 0.5, 0.75, 1].map((share) => m.shade(share, dark))"
        shades = module("colours.js").evaluate(code, dark)
        lightness = [float(shade.removeprefix("oklch(").split()[0]) for shade in shades]
        steps = np.diff(lightness) * way
        assert steps == pytest.approx([steps[0]] * 4)
        assert steps[0] > 0.1
        bytes_ = module("colours.js").evaluate("(m, dark) => [...m.ramp(dark)]", dark)
        assert len(bytes_) == 4 * 256
        assert (np.diff(np.reshape(bytes_, (256, 4))[:, :3].sum(axis=1)) * way >= 0).all()


def share(weight: float) -> str:
    """A weight in percent, as on the page."""
    return f"{float(f'{100 * weight:.1f}'):g}%"


def show(page: Page, url: str, model: str) -> None:
    page.goto(f"{url}/#/why")
    page.get_by_label("Model").select_option(model)
    expect(page.get_by_label("Stage")).to_be_visible()


def test_cursor_of_a_map_of_patches_marks_the_history(page: Page, server: Server) -> None:
    show(page, server.url, "patchtst")
    (stage,) = attention(server, "patchtst")
    weights = np.array(stage["weights"])[0]
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    picture = page.locator(".heatmap canvas")
    expect(picture).to_have_attribute(
        "aria-label", re.compile(f"The largest weight is {share(weights[row, column])}: ")
    )
    readout = page.locator("output.pointed")
    expect(readout).to_contain_text(f": {share(weights[row, column])}")
    history = page.locator(".chart")
    expect(history).to_have_attribute(
        "aria-label", re.compile("temperature, history.*Keys are marked")
    )
    # By keyboard.
    picture.focus()
    for key in ("Escape", "ArrowDown", "ArrowDown", "ArrowRight"):
        picture.press(key)
    expect(readout).to_contain_text(f": {share(weights[1, 1])}")
    picture.press("End")
    expect(readout).to_contain_text(f": {share(weights[1, -1])}")
    picture.press("Escape")
    expect(history).to_have_attribute("aria-label", re.compile("Nothing is marked"))
    # By pointer, in the last cell.
    box = picture.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + box["height"] - 44)
    expect(readout).to_contain_text(f": {share(weights[-1, -1])}")
    page.get_by_label("Channel").select_option("wind_speed")
    other = np.array(stage["weights"])[1]
    expect(readout).to_contain_text(f": {share(other[-1, -1])}")
    page.get_by_label("Head").select_option("2")
    (single,) = attention(server, "patchtst", heads=[1])
    largest = np.max(single["weights"][0])
    expect(page.locator(".scale")).to_contain_text(share(largest))
    page.get_by_text("The largest weights as a table").click()
    first = page.get_by_role("region", name="The largest weights").get_by_role("row").nth(1)
    expect(first).to_contain_text(share(largest))
    assert not faults(page)


def test_maps_of_channels_and_clusters(page: Page, server: Server) -> None:
    show(page, server.url, "forms")
    expect(page.get_by_role("heading", name="Attention of each channel")).to_be_visible()
    # The two channels at the cursor.
    charts = page.locator(".chart")
    expect(charts).to_have_count(2)
    expect(charts.first).to_have_attribute(
        "aria-label", re.compile("temperature.*Nothing is marked")
    )
    expect(charts.last).to_have_attribute("aria-label", re.compile("pressure.*Nothing is marked"))
    page.get_by_label("Stage").select_option("routing.1")
    expect(page.get_by_text("48 query steps, 4 key positions.")).to_be_visible()
    # Clusters have numbers but no times.
    expect(charts).to_have_attribute("aria-label", re.compile("Nothing is marked"))
    page.get_by_label("Head").select_option("1")
    expect(page.get_by_text("weights of the selected keys")).to_be_visible()
    page.get_by_label("Stage").select_option("state.2")
    expect(page.get_by_text("has no map: its mechanism has no")).to_be_visible()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a low limit of weights, and models with ill-conditioned choices."""
    folder = tmp_path_factory.mktemp("small")
    unclear = Spec(
        name="unclear", stages=(lag_stage(), lag_stage(name="b.0")), margin_bound=1e9, example=8
    )
    without = Spec(name="without", example=8)
    for spec in (unclear, without, replace(SPECS[2], stages=(channel_stage(3),), example=CONTEXT)):
        write_bundle(folder / "repository", spec)
    limit = {"max_attention_values": 64, "threads": 1}
    with Server(folder / "repository", folder / "log", **limit) as server:
        yield server


def test_stages_over_the_limit_are_loaded_one_by_one(
    page: Page, watch: Watch, small: Server
) -> None:
    watch.allow(422)
    show(page, small.url, "unclear")
    expect(page.get_by_text("loads one stage at a time")).to_be_visible()
    expect(page.get_by_text("Rounding may decide what the model chooses")).to_be_visible()
    page.get_by_label("Stage").select_option("b.0")
    expect(page.get_by_text("Strongest lag: ")).to_be_visible()


def test_heads_over_the_limit_are_loaded_one_by_one(
    page: Page, watch: Watch, server: Server
) -> None:
    watch.allow(422)

    def refuse(route: Route) -> None:
        if route.request.post_data_json["options"].get("attention", {}).get("heads") != "mean":
            route.continue_()
            return
        error = {"message": "too many", "param": "options.attention", "type": "invalid_input"}
        route.fulfill(status=422, json={"error": error})

    page.route("**/forecast", refuse)
    show(page, server.url, "patchtst")
    expect(page.get_by_text("loads one head at a time")).to_be_visible()
    expect(page.get_by_label("Head")).to_have_value("0")
    (stage,) = attention(server, "patchtst", heads=[0])
    expect(page.locator(".scale")).to_contain_text(share(np.max(stage["weights"][0])))


def test_model_without_attention_names_others(page: Page, small: Server) -> None:
    page.goto(f"{small.url}/#/why")
    page.get_by_label("Model").select_option("without")
    expect(page.get_by_text("Models with attention: forms, unclear.")).to_be_visible()
