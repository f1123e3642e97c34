"""How long `GET /healthz` waits while large and hostile requests come in."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from typing import Any, NamedTuple

from bench.harness import Result, Run
from bench.servers import ours as serve
from tests.support.bundles import Spec, write_bundle

_CONTEXT, _LIMIT_MS, _TRIES = 8, 50.0, 3
_INFER, _LOAD = "/v2/models/repeat/infer", "/v2/repository/models/repeat/load"
_NIXTLA = "/nixtla/v2/forecast"
_SERIES = "[1,2,3,4,5,6,7,8.5]"
# Another process, which sends requests until there is something to read on stdin.
_PROBE = """
import http.client, select, sys, time
connection, worst = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60), 0.0
connection.request("GET", "/healthz"); connection.getresponse().read()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    began = time.perf_counter()
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    worst = max(worst, time.perf_counter() - began)
print(worst * 1e3)
"""


class Kind(NamedTuple):
    """A request; `connections` send it at once, in pieces of `chunk` bytes if that is not 0."""

    name: str
    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    connections: int = 1
    chunk: int = 0


def kinds(size: int) -> Iterator[Kind]:
    """All requests; most bodies have about `size` bytes."""

    def names(size: int) -> str:
        """Members of as many names, and the beginning of more."""
        return "".join(f'"z{number}":1,' for number in range(size // 12))

    model = f'"model":"repeat","inputs":[{{"series":{_SERIES}}}]'
    series, metadata = '"model":"repeat","inputs":[{"series":', f'{model},"metadata":{{"a":'
    tensor = '"inputs":[{"name":"history","datatype":"FP32","shape":'
    data = f'{tensor}[1000,{_CONTEXT},1],"data":'
    panel = f'"freq":"h","h":1,"model":"repeat","series":{{"y":{_SERIES},"sizes":[{_CONTEXT}]'
    # Each of these bodies repeats one item in a list.
    for path, before, item, after in (
        ("/forecast", metadata, "0.1234567890123", "}"),
        ("/forecast", metadata, '{"a":{"b":[1]}}', "}"),
        ("/forecast", metadata, "{}", "}"),
        ("/forecast", metadata, '"a\\nb"', "}"),
        ("/forecast", metadata, "1,", "}"),
        ("/forecast", f'{model},"zz":', "[[[[[]]]]]", ""),
        ("/forecast", f'{model},"options":{{"quantiles":', "0.5", "}"),
        ("/forecast", f'{model},"options":{{"attention":{{"layers":', "1", "}}"),
        ("/forecast", '"model":"repeat","inputs":', "{}", ""),
        ("/forecast", series, "17.25", "}]"),
        ("/forecast", series, '17.25,"x"', "}]"),
        ("/forecast", series, "[17.25]", "}]"),
        ("/forecast", f'"options":{{"missing":"ffill"}},{series}', "17.25,null,NaN", "}]"),
        ("/forecast", f'{series}{_SERIES},"timestamps":', '"2024-01-01T00:00:00"', "}]"),
        ("/forecast", f'{series}{_SERIES},"channels":', '"a"', "}]"),
        ("/forecast", f'{series}{_SERIES},"name":', "[" * 200 + "]" * 200, "}]"),
        ("/backtest", metadata, "NaN", "}"),
        ("/backtest", series, "17.25", "}]"),
        ("/backtest", f'{series}{_SERIES},"timestamps":', '""', "}]"),
        (_INFER, tensor, "1", ',"data":[1]}]'),
        (_INFER, '"inputs":[],"outputs":', '{"name":"x"}', ""),
        (_INFER, '"inputs":', "{}", ""),
        (_INFER, data, "17.25", "}]"),
        (_INFER, data, "[[17.25],[1]]", "}]"),
        (_INFER, '"inputs":[],"parameters":{"priority":', "{}", "}"),
        (_NIXTLA, '"freq":"h","h":1,"series":{"y":[1],"sizes":', "1", "}"),
        (_NIXTLA, '"freq":"h","h":1,"series":{"sizes":[1600000],"y":', "1.25", "}"),
        (_NIXTLA, f'{panel},"X":', "[1]", "}"),
        (_NIXTLA, f'{panel},"start_datetime":', '""', "}"),
        (_NIXTLA, f'{panel}}},"level":', "80", ""),
        (_LOAD, '"parameters":{"config":', "{}", "}"),
    ):
        body = f"{{{before}[{','.join([item] * (size // (len(item) + 1)))}]{after}}}".encode()
        yield Kind(f"{before[-24:]}[{item[:16]}", path, body)
        if "a" in item:
            compressed = gzip.compress(body)
            yield Kind(
                f"gzip: {before[-24:]}[{item[:16]}", path, compressed, {"Content-Encoding": "gzip"}
            )
    for name, path, text in (
        ("unknown names", "/forecast", names(size) + model),
        ("a name", "/forecast", f'{series}{_SERIES},"name":"{"é" * (size // 2)}"}}]'),
        ("an unknown name", "/forecast", f'{model},"{"z" * size}":1'),
        ("blanks", "/forecast", model + " " * size),
        ("a text of backslashes", "/forecast", metadata + '"' + "\\\\" * (size // 2) + '"}'),
        ("parameters", _INFER, f'"inputs":[],"parameters":{{{names(size)}"a":1}}'),
        ("unknown names", _NIXTLA, f'{panel}}},{names(size)}"z":1'),
        ("parameters", _LOAD, f'"parameters":{{{names(size // 8)}"a":1}}'),
    ):
        yield Kind(name, path, f"{{{text}}}".encode())
    yield Kind("brackets", "/forecast", b"[" * size)
    head = f'{{{tensor}[1,{_CONTEXT},1],"parameters":{{"binary_data_size":{4 * _CONTEXT}}}}}],'
    head += f'{names(size)}"z":1}}'
    length = {"Inference-Header-Content-Length": str(len(head))}
    yield Kind("a head with binary", _INFER, head.encode() + bytes(4 * _CONTEXT), length)
    small = f"{{{names(size // 32)}{model}}}".encode()
    yield Kind("16 of unknown names", "/forecast", small, connections=16)
    slow = f"{{{model}{' ' * (size // 400)}}}".encode()
    yield Kind("16 in pieces of a byte", "/forecast", slow, connections=16, chunk=1)


def _send(port: int, kind: Kind) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    body: Any = kind.body
    if kind.chunk:
        starts = range(0, len(kind.body), kind.chunk)
        body = (kind.body[at : at + kind.chunk] for at in starts)
    headers = {"Content-Type": "application/json", **kind.headers}
    connection.request("POST", kind.path, body, headers, encode_chunked=bool(kind.chunk))
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def _try(port: int, kind: Kind) -> tuple[float, int]:
    """The worst wait in milliseconds, and the status of the answer."""
    command = [sys.executable, "-c", _PROBE, str(port)]
    with (
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as probe,
        ThreadPoolExecutor(kind.connections) as callers,
    ):
        assert probe.stdout is not None
        probe.stdout.readline()
        time.sleep(0.05)
        statuses = [*callers.map(partial(_send, port), [kind] * kind.connections)]
        time.sleep(0.05)
        worst, _ = probe.communicate("x")
        return float(worst), statuses[0]


def measure(run: Run) -> Result:
    """The least of three tries of each kind, next to a limit of 50 ms."""
    write_bundle(run.folder / "models", Spec(context=_CONTEXT))
    rows = []
    with serve(run.folder / "models", run.folder / "server") as (_, port):
        for kind in kinds(run.pick(8_000_000, 20_000)):
            if run.wants(kind.name):
                tries = [_try(port, kind) for _ in range(run.pick(_TRIES, 1))]
                worst, status = min(tries)
                size = len(kind.body) / 1e6
                rows.append(
                    {
                        "path": kind.path,
                        "request": kind.name,
                        "MB": size,
                        "status": status,
                        "wait, ms": worst,
                    }
                )
                print(rows[-1], flush=True)
            if run.quick and len(rows) == 8:
                break
    slow = [row for row in rows if float(row["wait, ms"]) > _LIMIT_MS and not run.quick]
    return Result({"waits": rows}, [f"{row['request']}: {row['wait, ms']:.0f} ms" for row in slow])
