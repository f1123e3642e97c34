"""The arithmetic of the harness, and what its cases share."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bench import versions
from bench.cases.server import CONNECTIONS, compared
from bench.harness import ROOT, Result, in_turns, kept, ratio, records_of, spread
from bench.render import documents, fill, shown, table
from bench.servers import Client, Load, request


def test_parts_take_turns() -> None:
    done: list[tuple[str, int]] = []

    def part(name: str, span: int) -> int:
        done.append((name, span))
        return len([each for each, _ in done if each == name])

    parts = [lambda span: part("loop", span), lambda span: 10 * part("server", span)]
    assert in_turns(parts, 6) == [[1, 2, 3], [10, 20, 30]]
    assert done == [("loop", 2), ("server", 2)] * 3


def test_ratios_are_of_consecutive_turns() -> None:
    assert ratio([50, 30, 100], [100, 50, 400]) == 0.5
    assert (spread([0.5]), spread([0.5, 0.7, 0.6])) == ("0.500", "0.600 ± 0.100")


def test_a_record_is_measured_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "a" / "records.jsonl", []
    for key in "aba":
        kept(path, key, lambda: calls.append(0) or {"mse": len(calls)})  # type: ignore[func-returns-value]
    assert records_of(path) == {"a": {"mse": 1}, "b": {"mse": 2}}


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234, "1,234"), (1234.5, "1,234"), (0.5, "0.5"), (12.345, "12.3"), (1.3e-6, "1.3e-06")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert shown(value) == text
    assert shown("81.2%") == "81.2%"


def test_a_table_has_the_columns_of_all_rows() -> None:
    rows = [{"model": "a", "ms": 0.25}, {"model": "b", "MiB": 7}]
    lines = ["| model | ms | MiB |", "| --- | --- | --- |", "| a | 0.25 |  |", "| b |  | 7 |", ""]
    assert table(rows) == "\n".join(lines)


def test_places_of_a_document_are_filled(tmp_path: Path) -> None:
    Result({"one": [{"a": 1}]}, machine="Machine: x.", commit="c").write(tmp_path / "case.json")
    begin, machine = "<!-- bench case: one -->\n", "<!-- bench case: machine -->\n"
    text = f"before\n{begin}old\n<!-- end -->\nbetween\n{machine}<!-- end -->\nafter"
    filled = fill(text, tmp_path)
    place = f"{begin}\n| a |\n| --- |\n| 1 |\n\n<!-- end -->"
    assert filled == f"before\n{place}\nbetween\n{machine}Machine: x.\n<!-- end -->\nafter"
    assert fill(filled, tmp_path) == filled


def test_a_place_may_show_a_part_of_tables(tmp_path: Path) -> None:
    rows = [{"server": "ours", "ms": 1, "MiB": 7}, {"server": "theirs", "ms": 2, "MiB": 8}]
    Result({"a": rows, "b": rows}, machine="", commit="").write(tmp_path / "case.json")
    begin = "<!-- bench case: a; b [server: theirs] [columns: model; ms] -->\n"
    lines = ["| model | ms |", "| --- | --- |", "| a | 2 |", "| b | 2 |"]
    filled = fill(f"{begin}<!-- end -->", tmp_path)
    assert filled == "\n".join([begin, *lines, "", "<!-- end -->"])
    with pytest.raises(KeyError, match="no server others"):
        fill("<!-- bench case: a [server: others] -->\n<!-- end -->", tmp_path)


def test_documents_show_the_results() -> None:
    for page in documents():
        assert fill(page.read_text()) == page.read_text(), page


def test_requirements_are_for_a_server_on_a_cpu() -> None:
    *found, last = versions.requirements(ROOT)
    assert last == str(ROOT)
    names = [re.split(r"[\[>=~;]", one)[0] for one in found]
    assert {"numpy", "fastapi", "onnxruntime", "pysimdjson"} < set(names)
    assert not {"foretell", "torch", "onnxruntime-gpu"} & set(names)


def test_a_commit_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT", tmp_path)
    tree = versions.checkout("HEAD")
    assert (tree / "service" / "server.py").is_file()
    assert versions.checkout("HEAD") == tree
    assert list(tmp_path.iterdir()) == [tree]
    with pytest.raises(RuntimeError, match="Needed a single revision"):
        versions.checkout("nothing")


def test_servers_are_compared_turn_by_turn() -> None:
    model = "PatchTST 336→96, d 16"

    def measured(name: str, rate: float, p99: float, memory: int) -> dict[object, object]:
        loads = dict.fromkeys(CONNECTIONS, [Load(rate, 0.0, p99, 0)] * 3)
        found: dict[object, object] = {**loads, "large": [4 * rate] * 3, "memory": memory}
        return {(name, what): value for what, value in found.items()}

    turns = measured("foretell", 96, 2, 9) | measured("foretell abc", 100, 1, 6)
    rows = [{"server": name} for name in ("foretell", "foretell abc", "FastAPI")]
    [row], missed = compared(model, rows, turns, "abc")  # type: ignore[arg-type]
    assert (row["64: req/s"], row["256 series"], row["64: p99"]) == (0.96, 0.96, 2)
    assert [each.split(",")[3].split(":")[0] for each in missed] == [
        *(" 64", " 256 series", " 64", " memory"),
    ]
    turns |= measured("foretell", 98, 1, 6)
    assert compared(model, rows, turns, "abc")[1] == []  # type: ignore[arg-type]
    # Without the row of the earlier commit nothing is compared.
    assert compared(model, rows[:1], turns, "abc") == ([], [])  # type: ignore[arg-type]


def test_every_request_has_one_outcome() -> None:
    async def run() -> Client:
        left = [200, 429]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
                writer.write(f"HTTP/1.1 {left.pop(0)} x\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Client(server.sockets[0].getsockname()[1], [request("/forecast", [1])])
        async with server:
            for _ in range(3):
                await client.send()
            client.close()
        return client

    client = asyncio.run(run())
    assert dict(client.statuses) == {200: 1, 429: 1, "connection lost": 1}
    assert len(client.seconds) == 1
    assert client.answers == "1 of 200, 1 of 429, 1 of connection lost"
