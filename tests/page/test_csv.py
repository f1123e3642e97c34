"""A CSV from its text to the request and the charts of the answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from foretell.timeaxis.frequency import Frequency
from tests.page.browser import Module

pytestmark = pytest.mark.browser
Modules = Callable[[str], Module]

NO_COVARIATES: dict[str, list[Any]] = {"future": [], "past": [], "static": []}
CARD: dict[str, Any] = {
    "name": "sea",
    "version": "2",
    "channels": ["wind speed", "level"],
    "targets": ["level"],
    "covariates": NO_COVARIATES,
    "context": 4,
    "horizon": 2,
    "max_horizon": 8,
    "frequency": "h",
    "needs_timestamps": False,
    "quantiles": True,
    "quantile_levels": [0.005, 0.995],
    "calibration": {"steps": 4},
}
ISO = "(m, seconds) => seconds.map((second) => m.isoOf(second))"
LATER = """(m, [from, alias, count]) =>
  [...Array(count).keys()].map((n) => m.later(from, m.stepOf(alias), n))"""
isoformat = datetime.fromisoformat
OPTIONS = {"horizon": 2, "level": 0.95, "missing": "error", "holdBack": 0}
READ = """async (module, [text, card, chosen]) => {
  const { readCsv } = await import(new URL("page/csv.js", document.baseURI));
  return module.sourceOf(readCsv(text, "sea"), card, chosen);
}"""
HOURS = [f"2024-03-01T{hour:02}:00:00" for hour in range(24)]


def csv(rows: list[str], header: str = "time,Level,wind_speed") -> str:
    return "\n".join([header, *rows]) + "\n"


def source(module: Modules, text: str, chosen: dict[str, int] | None = None) -> Any:
    return module("source.js").evaluate(READ, [text, CARD, chosen or {}])


def kinds(read: dict[str, Any]) -> list[str]:
    return [problem["kind"] for problem in read["problems"]]


def test_table_columns_match_channels_by_name(module: Modules) -> None:
    read = source(module, csv([f"{time},{i},{10 * i}" for i, time in enumerate(HOURS[:5])]))
    assert read["channels"] == ["wind speed", "level"]
    assert read["values"] == [[10 * i, i] for i in range(5)]
    assert read["timestamps"] == HOURS[:5]
    assert (read["frequency"], read["problems"]) == ("h", [])


def test_chosen_column_is_a_channel(module: Modules) -> None:
    text = csv([f"{time},1,{i}" for i, time in enumerate(HOURS[:4])], "time,level,breeze")
    assert source(module, text)["channels"] == ["level", "breeze"]
    chosen = source(module, text, {"wind speed": 2})
    assert (chosen["channels"], chosen["values"][3]) == (["wind speed", "level"], [3, 1])


@pytest.mark.parametrize(
    ("text", "comma", "value"),
    [
        ("-1.5", False, -1.5),
        ("12,800.0", False, 12800),
        ("1.280,5", True, 1280.5),
        ("6e-2", False, 0.06),
        ("NA", False, None),
        ("", False, None),
        *((text, False, "undefined") for text in ("n/x", "1,5", "Infinity", "0x10", "1 2")),
    ],
)
def test_number_is_parsed(module: Modules, text: str, comma: bool, value: object) -> None:
    code = """(csv, given) => {
      const found = csv.number(...given);
      return found === undefined ? "undefined" : found;
    }"""
    assert module("csv.js").evaluate(code, [text, comma]) == value


def test_semicolons_and_decimal_commas(module: Modules) -> None:
    rows = [f"{day:02}.01.2024;{day},5;1" for day in range(1, 6)]
    read = source(module, csv(rows, "Datum;level;wind speed"))
    assert read["values"][4] == [1, 5.5]
    assert read["timestamps"][4] == "2024-01-05T00:00:00"
    assert (read["frequency"], kinds(read)) == ("D", ["frequency"])


@pytest.mark.parametrize(
    ("cells", "separator", "value"),
    [
        (['"1,234"', '"12,500"', '"-1,000"'], ",", 1234),
        (["1,234", "12,500", "1,000"], "\t", 1234),
        (["1,234", "12,500", "1,000"], ";", 1.234),
        (["0,234", "0,500", "0,250"], "\t", 0.234),
        (['"1,5"', '"12,500"', '"1,000"'], ",", 1.5),
    ],
)
def test_thousands_commas_are_not_decimal_commas(
    module: Modules, cells: list[str], separator: str, value: float
) -> None:
    lines = [separator.join(["time", "level"])]
    lines += [separator.join(cells) for cells in zip(HOURS, cells, strict=False)]
    assert source(module, "\n".join(lines))["values"][0] == [value]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("3/14/2024 12:05 AM", "2024-03-14T00:05:00"),
        ("3/14/2024 12:05 pm", "2024-03-14T12:05:00"),
        ("2024-03-14 1:05:09 p.m.", "2024-03-14T13:05:09"),
        ("2024-03-14T13:05:09.500000000", "2024-03-14T13:05:09.500"),
        ("2024-03-14 13:05:09 UTC", "2024-03-14T13:05:09Z"),
        ("2024-03-14 13:05:09-03", "2024-03-14T13:05:09-03:00"),
        ("2024-03-14 13:05:09+0530", "2024-03-14T13:05:09+05:30"),
    ],
)
def test_time_is_parsed(module: Modules, text: str, time: str) -> None:
    code = """(module, text) => {
      const { wall, offset } = module.readTime(text, "mdy");
      return module.isoOf(wall, offset);
    }"""
    assert module("time.js").evaluate(code, text) == time


def test_regular_times_decide_the_order_of_day_and_month(module: Modules) -> None:
    rows = [f"01/{day:02}/2024,1,1" for day in range(1, 14)]
    assert source(module, csv(rows))["timestamps"][11] == "2024-01-12T00:00:00"
    read = source(module, csv([f"01/02/2024 {hour:02}:00,1,1" for hour in range(4)]))
    assert kinds(read) == ["order of days"]
    assert "day or the month" in module("request.js").call("refusalOf", read, CARD, OPTIONS)


def test_numbers_are_not_times(module: Modules) -> None:
    rows = [f"1013.{i},{i},1" for i in range(4)]
    read = source(module, csv(rows, "pressure,level,wind speed"))
    assert (read["timestamps"], read["channels"][-1]) == (None, "pressure")


def test_first_of_several_series_is_read(module: Modules) -> None:
    rows = [f"{time},{name},{i},1" for i, time in enumerate(HOURS[:4]) for name in "ab"]
    text = csv(rows, "time,unique_id,level,wind speed")
    read = source(module, text)
    assert (read["name"], read["timestamps"], read["problems"]) == ("a", HOURS[:4], [])
    code = "(csv, text) => csv.seriesOf(csv.readCsv(text, 'sea'), 'b').rows"
    assert [row[1] for row in module("csv.js").evaluate(code, text)] == ["b"] * 4


def test_time_zone_is_sent_and_removes_the_gap_of_daylight_saving(module: Modules) -> None:
    spring = [f"2024-03-31T{hour:02}:00:00" for hour in (0, 1, 3, 4, 5)]
    text = csv([f"{time},1,1" for time in spring])
    assert kinds(source(module, text)) == ["gap"]
    code = READ.replace('readCsv(text, "sea")', "{...readCsv(text), timeZone: 'Europe/Berlin'}")
    read = module("source.js").evaluate(code, [text, CARD, {}])
    assert read["problems"] == []
    body = module("request.js").call("requestOf", read, CARD, OPTIONS)
    assert body["inputs"][0]["time_zone"] == "Europe/Berlin"


def test_every_problem_has_row_and_channel(module: Modules) -> None:
    times = [HOURS[0], HOURS[1], HOURS[4], HOURS[3], HOURS[3], "soon", HOURS[6]]
    cells = ["1", "", "x", "1", "1", "1", "1"]
    read = source(module, csv([f"{t},{c},1" for t, c in zip(times, cells, strict=True)]))
    found = {(one["kind"], one.get("row"), one.get("channel")) for one in read["problems"]}
    assert found == {
        ("missing", 1, 1),
        ("number", 2, 1),
        ("gap", 2, -1),
        ("order", 3, -1),
        ("duplicate", 4, -1),
        ("time", 5, -1),
    }


def test_repaired_rows_can_be_sent(module: Modules) -> None:
    times = [HOURS[0], HOURS[1], HOURS[5], HOURS[4], HOURS[4], HOURS[6]]
    text = csv([f"{time},{i or 'x'},1" for i, time in enumerate(times)])
    code = """async (module, [text, card]) => {
      const { readCsv } = await import(new URL("page/csv.js", document.baseURI));
      let table = readCsv(text, "sea");
      const read = () => module.sourceOf(table, card);
      table = module.emptied(table, read().problems);
      table = module.sorted(table);
      table = module.single(table, read().problems);
      table = module.closed(table, read().problems, read().frequency);
      return read();
    }"""
    read = module("source.js").evaluate(code, [text, CARD])
    assert read["timestamps"] == HOURS[:7]
    assert [level for _, level in read["values"]] == [None, 1, None, None, 4, 2, 5]
    assert set(kinds(read)) == {"missing"}
    request = module("request.js")
    assert "row 4" in request.call("refusalOf", read, CARD, OPTIONS)
    filled = OPTIONS | {"missing": "interpolate"}
    assert request.call("refusalOf", read, CARD, filled) is None
    body = request.call("requestOf", read, CARD, filled)
    # Earlier rows are sent to fill missing values of the first row of the context.
    assert body["inputs"][0]["timestamps"] == HOURS[1:7]
    assert body["options"]["missing"] == "interpolate"


@pytest.mark.parametrize(
    ("levels", "level", "sent"),
    [
        ([0.005, 0.995], 0.95, [0.025, 0.1, 0.9, 0.975]),
        ([0.1, 0.9], 0.95, [0.1, 0.9]),
        ([0.1, 0.9], 0.5, [0.25, 0.75]),
        ([1 / 21, 20 / 21], 0.95, [0.05, 0.1, 0.9, 0.95]),
        ([0.1, 0.7], 0.95, [0.3, 0.7]),
        ([0.5, 0.9], 0.95, None),
        ([0.1, 0.9], None, None),
    ],
)
def test_intervals_are_no_wider_than_the_models_quantile_levels(
    module: Modules, levels: list[float], level: float | None, sent: list[float] | None
) -> None:
    card = CARD | {"quantile_levels": levels}
    read = source(module, csv([f"{time},1,2" for time in HOURS[:5]]))
    body = module("request.js").call("requestOf", read, card, OPTIONS | {"level": level})
    assert body["options"].get("quantiles") == sent


@pytest.mark.parametrize(
    ("times", "frequency"),
    [
        (["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"], "ME"),
        (["2024-01-01", "2024-02-01", "2024-03-01"], "MS"),
        (["2024-01", "2024-04", "2024-07"], "QS"),
        (["2024-01-15", "2024-02-15", "2024-03-15"], "M"),
        (["2020-01-01", "2021-01-01", "2022-01-01"], "YS"),
        (["2024-03-07", "2024-03-08", "2024-03-11", "2024-03-12", "2024-03-13"], "B"),
        (["2024-03-03", "2024-03-10", "2024-03-17"], "W"),
        (["2024-03-03", "2024-03-31", "2024-04-28"], "4W"),
        (["2024-01-01", "2024-03-01", "2024-05-01"], "2MS"),
        (["2023-02-01", "2023-02-15", "2023-03-01", "2023-03-15", "2023-04-01"], "SMS-15"),
        (["2024-03-30", "2024-04-30", "2024-05-30"], "M"),
        (["2024-03-01 00:00", "2024-03-01 00:15", "2024-03-01 00:30"], "15min"),
        # The hour that daylight saving skips is not missing.
        (["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00", "2024-03-31T04:00+02:00"], "h"),
    ],
)
def test_frequency_is_inferred(module: Modules, times: list[str], frequency: str) -> None:
    read = source(module, csv([f"{time},1,1" for time in times]))
    assert read["frequency"] == frequency
    assert not {"gap", "order", "between", "duplicate"} & set(kinds(read))


@pytest.mark.parametrize(
    "frequency",
    [
        *("SMS-15", "SME-15", "3SMS-2", "SME-27", "BMS", "BME", "2BMS", "BQE", "BYS", "WOM-1MON"),
        *("WOM-4SUN", "LWOM-FRI", "2WOM-3FRI", "MS", "ME", "2QS", "YE", "W", "B"),
        *("15min", "10ms", "250us"),
    ],
)
def test_steps_equal_those_of_the_service(module: Modules, frequency: str) -> None:
    steps = Frequency.parse(frequency).steps_from(np.datetime64("2019-11-13T00:00"), 40)
    seconds = (steps.astype(np.int64) / 1e6).tolist()
    later = module("time.js").evaluate(LATER, [seconds[0], frequency, 40])
    assert later == pytest.approx(seconds, abs=5e-7, rel=0)
    assert [isoformat(text) for text in module("time.js").evaluate(ISO, seconds)] == steps.tolist()
    regular = module("regular.js")
    assert regular.call("frequencyOf", seconds) == frequency
    assert regular.call("irregular", seconds, frequency) == []
    holey = [*seconds[:5], *seconds[7:20], seconds[20] + 400.000123, *seconds[21:]]
    assert regular.call("irregular", holey, frequency)[:2] == [
        {"kind": "gap", "row": 5, "steps": 2},
        {"kind": "between", "row": 18},
    ]


@pytest.mark.parametrize("frequency", ["MS", "M", "SMS-15", "BME", "B", "6h"])
def test_steps_before_1970_keep_their_hour(module: Modules, frequency: str) -> None:
    steps = Frequency.parse(frequency).steps_from(np.datetime64("1960-01-01T12:00"), 20)
    seconds = (steps.astype(np.int64) / 1e6).tolist()
    assert module("time.js").evaluate(LATER, [seconds[0], frequency, 20]) == seconds


def test_frequency_without_an_alias_is_null(module: Modules) -> None:
    regular = module("regular.js")
    assert regular.call("frequencyOf", [1.0005 * second for second in range(9)]) is None
    ends = ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30", "2024-05-31", "2024-06-30"]
    read = source(module, csv([f"{time},1,1" for time in sorted([*ends, "2024-04-15"])]))
    assert read["frequency"] == "M"


def test_axis_is_continuous_across_offsets(module: Modules) -> None:
    times = ["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00", "2024-03-31T02:00Z"]
    first, *others = module("time.js").call("secondsOf", times)
    assert [other - first for other in others] == [3600, 7200]


def test_request_has_the_channels_and_rows_of_the_context(module: Modules) -> None:
    read = source(module, csv([f"{time},{i},{10 * i}" for i, time in enumerate(HOURS)]))
    request = module("request.js")
    held = OPTIONS | {"holdBack": 3}
    assert request.call("requestOf", read, CARD, held) == {
        "model": "sea@2",
        "inputs": [
            {
                "name": "sea",
                "channels": CARD["channels"],
                "series": [[10 * i, i] for i in range(17, 21)],
                "timestamps": HOURS[17:21],
            }
        ],
        "options": {"horizon": 2, "quantiles": [0.025, 0.1, 0.9, 0.975]},
    }
    assert request.call("actualOf", read, CARD, held) == [[21], [22], [23]]
    beyond = request.call("requestOf", read, CARD, OPTIONS | {"horizon": 5})
    assert beyond["options"] == {"horizon": 5}
    span = {"first": 0, "end": len(HOURS), "steps": 0}
    everything = request.call("requestOf", read, CARD, OPTIONS, {"span": span})
    assert len(everything["inputs"][0]["series"]) == len(HOURS)


def test_refusal_names_the_reason(module: Modules) -> None:
    def refusal(text: str, **options: Any) -> Any:
        read = source(module, text)
        return module("request.js").call("refusalOf", read, CARD, OPTIONS | options)

    rows = [f"{time},{i},1" for i, time in enumerate(HOURS[:6])]
    assert refusal(csv(rows)) is None
    assert refusal(csv(rows), holdBack=3) == ("3 rows, without the 3 held back: this model reads 4")
    assert refusal(csv(rows, "time,level,breeze")) == "no column for wind speed"
    # A problem before the context does not matter.
    assert refusal(csv([f"{HOURS[0]},x,1", *rows[1:]])) is None
    last = csv([*rows[:5], f"{HOURS[5]},x,1"])
    assert "“x” is not a number" in refusal(last)
    assert refusal(last, holdBack=1) is None


@pytest.mark.parametrize(
    ("param", "place"),
    [
        ("inputs[0].series[2][0]", {"field": "cell", "row": 12, "column": 2, "name": "wind speed"}),
        ("inputs[0].timestamps[1]", {"field": "cell", "row": 11, "column": -1, "name": "time"}),
        ("options.horizon", {"field": "horizon"}),
        ("model", None),
    ],
)
def test_param_of_an_error_maps_to_a_cell_or_field(
    module: Modules, param: str, place: object
) -> None:
    read = {"channels": ["level", "wind speed"], "columns": [1, 2], "header": [], "chosen": {}}
    span = {"first": 10, "end": 14}
    assert module("request.js").call("placeOf", param, read, CARD, span) == place


def test_numbers_in_words(module: Modules) -> None:
    words = module("words.js")
    assert [words.call("digits", value, 30) for value in (12.3456, -0.001, None)] == [
        "12.3",
        "0.0",
        "\N{EN DASH}",
    ]
    assert words.call("digits", 12860.1, 3) == "12860.10"
    assert words.call("frequencyWords", "15min") == "every 15 minutes"
    assert words.call("stretch", 24, "h") == "24 hours"
    assert words.call("percent", 0.9453) == "94.5%"
    assert words.call("listed", ["a", "b", "c"], 2) == "a, b and 1 more"


def test_series_and_bands_of_a_chart(module: Modules) -> None:
    card = CARD | {"channels": ["a", "b"], "targets": ["b"], "context": 2}
    history = {
        "channels": ["a", "b"],
        "values": [[0, 1], [0, 2], [0, 3]],
        "timestamps": ["2024-03-01T00:00", "2024-03-01T01:00", "2024-03-01T02:00"],
        "actual": [[5], [9]],
    }
    forecast = {
        "mean_forecast": [[4], [6]],
        "quantiles": {
            "0.025": [[3], [3]],
            "0.1": [[4], [5]],
            "0.9": [[5], [7]],
            "0.975": [[8], [8]],
        },
    }
    answer = {"outputs": [{"content": [forecast]}]}
    panels = module("panels.js")
    requested = {"source": history, "card": card, "options": {}}
    made = panels.call("panelsOf", answer, requested)
    [panel] = made["panels"]
    assert [x - made["x"][0] for x in made["x"]] == [0, 3600, 7200, 10800, 14400]
    without = requested | {"source": history | {"timestamps": None}}
    assert panels.call("panelsOf", answer, without)["x"] == [1, 2, 3, 4, 5]
    assert panels.call("errorOf", panel) == {
        "mae": 2,
        "steps": 2,
        "coverage": [{"share": 0.95, "covered": 1}, {"share": 0.8, "covered": 1}],
    }
    drawn = panels.call("drawn", made, panel)
    # Lines of the forecast begin where the history ends.
    assert {one["label"]: one["values"] for one in drawn["series"]} == {
        "upper end of 95%": [None, None, 3, 8, 8],
        "lower end of 95%": [None, None, 3, 3, 3],
        "upper end of 80%": [None, None, 3, 5, 7],
        "lower end of 80%": [None, None, 3, 4, 5],
        "history": [1, 2, 3, None, None],
        "forecast": [None, None, 3, 4, 6],
        "actual": [None, None, None, 5, 9],
    }
    assert [band[:2] for band in drawn["bands"]] == [[0, 1], [2, 3]]
