"""Health checks stood still while large requests were read: sgl-project/sglang#30770,
vllm-project/vllm#24910.

The event loop does not read the large part of a request, and no call of a parser, which holds the
GIL, gets more than a piece of it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import orjson
import pytest

from foretell.service.forecast import metadata
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle

# Sizes of bodies in bytes: the event loop reads the small ones, threads read the large ones.
SMALL, LARGE = 250_000, 1_200_000
PIECE = 64 * 1024
SERIES = [1, 2, 3, 4, 5, 6, 7, 8]
FORECASTS = ("/forecast", "/backtest")
INFER = "/v2/models/repeat/infer"
NIXTLA = ("/nixtla/v2/forecast", "/nixtla/v2/cross_validation")


class Kind(NamedTuple):
    """A request with many items of one kind.

    Attributes:
        path: Path of the route.
        before: JSON before the items.
        item: An item; `#` is its number.
        after: JSON after the items.
    """

    path: str
    before: str
    item: str
    after: str

    def __repr__(self) -> str:
        return f"{self.path} {self.before[-24:]} {self.item}"

    def body(self, size: int) -> bytes:
        """A body of this size, filled with items."""
        count = size // (len(self.item.replace("#", "0000000")) + 1)
        items = (self.item.replace("#", f"{number:07}") for number in range(count))
        return f"{self.before}{','.join(items)}{self.after}".encode()


def of_forecasts(path: str) -> Iterator[Kind]:
    model = f'{{"model":"repeat","inputs":[{{"series":{SERIES}}}]'
    yield Kind(path, f'{model},"metadata":{{"a":[', "0.5", "]}}")
    yield Kind(path, f'{model},"metadata":{{"a":[NaN,', "0.5", "]}}")
    yield Kind(path, f'{model},"metadata":{{"a":[', "[[[]]]", "]}}")
    yield Kind(path, f'{model},"metadata":{{', '"#":{}', "}}")
    yield Kind(path, f"{model},", '"#":1', "}")
    yield Kind(path, f'{model},"unknown":[', "[[[]]]", "]}")
    yield Kind(path, f'{model},"options":{{"quantiles":[', "0.5", "]}}")
    yield Kind(path, f'{model},"options":{{', '"#":1', "}}")
    for item in ("1", "null", "NaN", '"a"', "[1]", "[1,2]", "[]", "{}", "[[[1]]]", "1e999"):
        yield Kind(path, '{"model":"repeat","inputs":[{"series":[', item, "]}]}")
        yield Kind(path, '{"model":"repeat","inputs":[{"series":[[1],', item, "]}]}")
    for item in ('"2024-01-01T00:00:00"', '""', "[]", '{"a":1}'):
        before = f'{{"model":"repeat","inputs":[{{"series":{SERIES},"timestamps":['
        yield Kind(path, before, item, "]}]}")
    for item in ("{}", "[]", '{"series":[1]}', '{"series":[1],"z#":1}'):
        yield Kind(path, '{"model":"repeat","inputs":[', item, "]}")
    yield Kind(path, f'{{"model":"repeat","inputs":[{{"series":{SERIES},', '"#":1', "}]}")


def of_inferences() -> Iterator[Kind]:
    tensor = '{"inputs":[{"name":"history","datatype":"FP32","shape":[100,8,1],"data":['
    for item in ("1", "[1]", "[[1]]", "[]", "{}", '"a"', "null"):
        yield Kind(INFER, tensor, item, "]}]}")
    yield Kind(INFER, '{"inputs":[{"name":"history","datatype":"FP32","shape":[', "1", "]}]}")
    yield Kind(INFER, '{"inputs":[],"outputs":[', '{"name":"x"}', "]}")
    yield Kind(INFER, '{"inputs":[],"outputs":[', '{"name":"x","z#":1}', "]}")
    yield Kind(INFER, '{"inputs":[', '{"name":"x"}', "]}")
    yield Kind(INFER, '{"inputs":[],', '"#":1', "}")
    yield Kind(INFER, '{"inputs":[],"parameters":{', '"#":1', "}}")


def of_nixtla(path: str) -> Iterator[Kind]:
    rest = '"freq":"h","h":1,"model":"repeat"'
    series = f'{{{rest},"series":{{"y":{SERIES},"sizes":[8]'
    yield Kind(path, f'{{{rest},"series":{{"y":[1],"sizes":[', "1", "]}}")
    yield Kind(path, f'{{{rest},"series":{{"sizes":[8],"y":[', "1", "]}}")
    for item in ('""', "[]", '"2024-01-01"'):
        yield Kind(path, f'{series},"start_datetime":[', item, "]}}")
    yield Kind(path, f'{series},"X":[', "[1]", "]}}")
    yield Kind(path, f"{series}}},", '"#":1', "}")
    yield Kind(path, f'{series}}},"level":[', "80", "]}")
    yield Kind(path, f'{series}}},"model_parameters":{{', '"#":1', "}}")


KINDS = [
    *(kind for path in FORECASTS for kind in of_forecasts(path)),
    *of_inferences(),
    *(kind for path in NIXTLA for kind in of_nixtla(path)),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    models: Path = tmp_path_factory.mktemp("models")
    write_bundle(models, Spec())
    with Client(models) as client:
        # Modules that the first request imports.
        for kind in KINDS:
            client.request("POST", kind.path, content=kind.body(100))
        yield client


def calls(client: Client, kind: Kind, size: int) -> int:
    """Number of function calls on the event loop for a request."""
    count, body = 0, kind.body(size)

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        answer = client.request("POST", kind.path, content=body)
    finally:
        sys.setprofile(before)
    assert answer.status_code in (200, 400, 422), answer.text
    return count


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_work_of_the_event_loop_does_not_grow_with_the_request(client: Client, kind: Kind) -> None:
    large, larger = calls(client, kind, LARGE // 4), calls(client, kind, LARGE)
    # An answer is sent piece by piece.
    assert larger < large + 100 * LARGE // PIECE
    assert calls(client, kind, SMALL) < 120_000


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_large_bodies_are_parsed_in_pieces(
    client: Client, kind: Kind, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, parsed = threading.current_thread(), list[tuple[bool, int]]()
    body = kind.body(size)

    def watched(parse: Any) -> Any:
        def watch(text: bytes, *arguments: Any, **options: Any) -> Any:
            parsed.append((threading.current_thread() is loop, len(text)))
            return parse(text, *arguments, **options)

        return watch

    with monkeypatch.context() as patch:
        patch.setattr(orjson, "loads", watched(orjson.loads))
        patch.setattr(metadata, "from_json", watched(metadata.from_json))
        answer = client.request("POST", kind.path, content=body)
    assert answer.status_code in (200, 400, 422), answer.text
    assert json.loads(answer.content)
    if size == SMALL:
        assert all(length <= len(body) for _, length in parsed)
    else:
        assert not any(is_loop for is_loop, _ in parsed)
        assert all(length < 2 * PIECE for _, length in parsed)
