"""How long `GET /healthz` waits while hostile and large requests come in: `python -m bench.stall`.

Another process asks while each request is answered. Prints the worst wait of each kind, the least
of three tries, and fails if one is over 50 ms. `--models N` serves so many versions besides.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.serving.contenders import ROOT
from bench.serving.ports import free_port
from bench.serving.process import running
from tests.support.bundles import Spec, write_bundle

_CONTEXT = 8
_LIMIT_MS = 50.0
_TRIES = 3
_CONNECTIONS = 16
# Of every body, about.
_SIZE = 8_000_000
_FORECAST, _BACKTEST, _NIXTLA = "/forecast", "/backtest", "/nixtla/v2/forecast"
_INFER, _LOAD = "/v2/models/repeat/infer", "/v2/repository/models/repeat/load"

_ASKING = """
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


@dataclass(frozen=True)
class Kind:
    """A request.

    Attributes:
        name: For the report.
        path: Where it goes.
        body: What is sent.
        headers: With it.
        connections: How many send it at once.
        chunk: Bytes of each piece that is sent; all at once if 0.
    """

    name: str
    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    connections: int = 1
    chunk: int = 0


def _filled(before: str, item: str, after: str, size: int = _SIZE) -> bytes:
    """JSON around a list of one item again and again."""
    return f"{before}[{','.join([item] * (size // (len(item) + 1)))}]{after}".encode()


def _names(size: int = _SIZE) -> str:
    """Members of as many names, and the beginning of more."""
    return "".join(f'"z{number}":1,' for number in range(size // 12))


def kinds() -> Iterator[Kind]:
    """All that is tried."""
    series = "[1,2,3,4,5,6,7,8.5]"
    inputs = f'"inputs":[{{"series":{series}}}]'
    model = f'"model":"repeat",{inputs}'
    for path in (_FORECAST, _BACKTEST):
        own = path[1:]
        for name, item in (
            ("floats", "0.1234567890123"),
            ("integers", "1"),
            ("objects", '{"a":{"b":[1]}}'),
            ("empty objects", "{}"),
            ("NaN", "NaN"),
            ("texts", '"a\\nb"'),
        ):
            yield Kind(
                f"{own}: metadata of {name}",
                path,
                _filled(f'{{{model},"metadata":{{"a":', item, "}}"),
            )
        yield Kind(f"{own}: unknown names", path, f"{{{_names()}{model}}}".encode())
        yield Kind(f"{own}: an unknown value", path, _filled(f'{{{model},"zz":', '{"a":1}', "}"))
        yield Kind(
            f"{own}: quantiles", path, _filled(f'{{{model},"options":{{"quantiles":', "0.5", "}}")
        )
        yield Kind(f"{own}: inputs", path, _filled('{"model":"repeat","inputs":', "{}", "}"))
        yield Kind(
            f"{own}: a long history",
            path,
            _filled('{"model":"repeat","inputs":[{"series":', "17.25", "}]}"),
        )
        yield Kind(
            f"{own}: a history with gaps",
            path,
            _filled(
                '{"model":"repeat","options":{"missing":"ffill"},"inputs":[{"series":',
                "17.25,null",
                "}]}",
            ),
        )
        yield Kind(
            f"{own}: a history with NaN",
            path,
            _filled(
                '{"model":"repeat","options":{"missing":"ffill"},"inputs":[{"series":',
                "17.25,NaN",
                "}]}",
            ),
        )
        yield Kind(
            f"{own}: a history with a text",
            path,
            _filled('{"model":"repeat","inputs":[{"series":', "17.25", "}]}").replace(
                b"17.25]", b'"x"]'
            ),
        )
        yield Kind(
            f"{own}: rows",
            path,
            _filled('{"model":"repeat","inputs":[{"series":', "[17.25]", "}]}"),
        )
        yield Kind(
            f"{own}: rows of no numbers",
            path,
            _filled('{"model":"repeat","inputs":[{"series":', '["a"]', "}]}"),
        )
        yield Kind(
            f"{own}: timestamps",
            path,
            _filled(
                f'{{"model":"repeat","inputs":[{{"series":{series},"timestamps":',
                '"2024-01-01T00:00:00"',
                "}]}",
            ),
        )
        yield Kind(
            f"{own}: empty timestamps",
            path,
            _filled(f'{{"model":"repeat","inputs":[{{"series":{series},"timestamps":', '""', "}]}"),
        )
        yield Kind(
            f"{own}: channels",
            path,
            _filled(f'{{"model":"repeat","inputs":[{{"series":{series},"channels":', '"a"', "}]}"),
        )
        yield Kind(
            f"{own}: a name",
            path,
            f'{{"inputs":[{{"series":{series},"name":"{"é" * (_SIZE // 2)}"}}]}}'.encode(),
        )
        yield Kind(f"{own}: a model's name", path, f'{{{inputs},"model":"{"a" * _SIZE}"}}'.encode())
        yield Kind(f"{own}: an unknown name", path, f'{{{model},"{"z" * _SIZE}":1}}'.encode())
        yield Kind(f"{own}: no end", path, _filled(f'{{{model},"metadata":{{"a":', "1", ""))
        yield Kind(f"{own}: brackets", path, b"[" * _SIZE)
        yield Kind(f"{own}: nested lists", path, _filled(f'{{{model},"zz":', "[[[[[]]]]]", "}"))
        for name, text in (("backslashes", "\\\\"), ("quotes", '\\"'), ("brackets", "]")):
            long = text * (_SIZE // len(text))
            yield Kind(
                f"{own}: a text of {name}",
                path,
                f'{{{model},"metadata":{{"a":"{long}"}}}}'.encode(),
            )
        for size in (2_000_000, _SIZE):
            for name, item in (("lists", "[" * 200 + "]" * 200), ("short lists", "[]")):
                yield Kind(
                    f"{own}: {size / 1e6:.0f} MB of {name} for a name",
                    path,
                    _filled(
                        f'{{"model":"repeat","inputs":[{{"series":{series},"name":',
                        item,
                        "}]}",
                        size,
                    ),
                )
        yield Kind(f"{own}: blanks", path, f"{{{model}{' ' * _SIZE}}}".encode())
    many = ",".join([f'{{"series":{json.dumps([0.125 * row for row in range(900)])}}}'] * 1024)
    yield Kind(
        "forecast: 1,024 series", _FORECAST, f'{{"model":"repeat","inputs":[{many}]}}'.encode()
    )
    layers = f'{{{model},"options":{{"attention":{{"layers":'
    yield Kind("forecast: layers", _FORECAST, _filled(layers, "1", "}}}"))
    tensor = '{"inputs":[{"name":"history","datatype":"FP32","shape":'
    yield Kind("infer: shape", _INFER, _filled(tensor, "1", ',"data":[1]}]}'))
    tensor += f"[1000,{_CONTEXT},1],"
    yield Kind("infer: outputs", _INFER, _filled('{"inputs":[],"outputs":', '{"name":"x"}', "}"))
    yield Kind("infer: empty outputs", _INFER, _filled('{"inputs":[],"outputs":', "{}", "}"))
    yield Kind("infer: inputs", _INFER, _filled('{"inputs":', '{"name":"x"}', "}"))
    yield Kind("infer: data", _INFER, _filled(f'{tensor}"data":', "17.25", "}]}"))
    yield Kind("infer: nested data", _INFER, _filled(f'{tensor}"data":', "[[17.25],[1]]", "}]}"))
    yield Kind("infer: empty data", _INFER, _filled(f'{tensor}"data":', "[]", "}]}"))
    yield Kind(
        "infer: parameters", _INFER, f'{{"parameters":{{{_names()}"a":1}},"inputs":[]}}'.encode()
    )
    yield Kind(
        "infer: priority", _INFER, _filled('{"inputs":[],"parameters":{"priority":', "{}", "}}")
    )
    one = '{"inputs":[{"name":"history","datatype":"FP32"'
    one += f',"shape":[1,{_CONTEXT},1],"data":{series}}}]'
    yield Kind("infer: an id", _INFER, f'{one},"id":"{"é" * (_SIZE // 2)}"}}'.encode())
    yield Kind("infer: unknown names", _INFER, f'{one},{_names()}"z":1}}'.encode())
    binary = one.replace(f'"data":{series}', f'"parameters":{{"binary_data_size":{_CONTEXT * 4}}}')
    head = f'{binary},{_names()}"z":1}}'.encode()
    length = (("Inference-Header-Content-Length", str(len(head))),)
    yield Kind("infer: a head with binary", _INFER, head + bytes(4 * _CONTEXT), length)
    yield Kind("load: parameters", _LOAD, f'{{"parameters":{{{_names(1_000_000)}"a":1}}}}'.encode())
    yield Kind(
        "load: a configuration", _LOAD, _filled('{"parameters":{"config":', "{}", "}}", 250_000)
    )
    for path in (_NIXTLA, _NIXTLA.replace("forecast", "cross_validation")):
        own = f"nixtla {path.rpartition('/')[2]}"
        rest = '"freq":"h","h":1,"model":"repeat"'
        good = f'{{"series":{{"y":{series},"sizes":[{_CONTEXT}]}},{rest}'
        yield Kind(
            f"{own}: sizes", path, _filled('{"series":{"y":[1],"sizes":', "1", f"}},{rest}}}")
        )
        yield Kind(f"{own}: unknown names", path, f'{good},{_names()}"z":1}}'.encode())
        yield Kind(
            f"{own}: 20,000 unknown names", path, f'{good},{_names(240_000)}"z":1}}'.encode()
        )
        yield Kind(
            f"{own}: parameters",
            path,
            f'{good},"model_parameters":{{{_names(240_000)}"z":1}}}}'.encode(),
        )
        yield Kind(f"{own}: levels", path, _filled(f'{good},"level":', "80", "}"))
        yield Kind(
            f"{own}: X",
            path,
            _filled(f'{{"series":{{"y":{series},"sizes":[{_CONTEXT}],"X":', "[1]", f"}},{rest}}}"),
        )
        yield Kind(
            f"{own}: y", path, _filled('{"series":{"sizes":[1600000],"y":', "1.25", f"}},{rest}}}")
        )
        yield Kind(
            f"{own}: times",
            path,
            _filled(
                f'{{"series":{{"y":{series},"sizes":[{_CONTEXT}],"start_datetime":',
                '""',
                f"}},{rest}}}",
            ),
        )
        yield Kind(f"{own}: hist_exog", path, _filled(f'{good},"hist_exog":', "{}", "}"))
    small = _filled(f'{{{model},"metadata":{{"a":', '{"a":1}', "}}", 250_000)
    yield Kind("16 of 250 kB: metadata", _FORECAST, small, connections=_CONNECTIONS)
    small = _filled(f'{{{model},"zz":', "{}", "}", 250_000)
    yield Kind("16 of 250 kB: an unknown value", _FORECAST, small, connections=_CONNECTIONS)
    small = f"{{{_names(250_000)}{model}}}".encode()
    yield Kind("16 of 250 kB: unknown names", _FORECAST, small, connections=_CONNECTIONS)
    yield Kind(
        "16 in chunks of a byte",
        _FORECAST,
        f"{{{model}{' ' * 20_000}}}".encode(),
        connections=_CONNECTIONS,
        chunk=1,
    )
    yield Kind(
        "gzip: metadata",
        _FORECAST,
        gzip.compress(_filled(f'{{{model},"metadata":{{"a":', "1", "}}")),
        (("Content-Encoding", "gzip"),),
    )
    yield Kind(
        "gzip: outputs",
        _INFER,
        gzip.compress(_filled('{"inputs":[],"outputs":', "{}", "}")),
        (("Content-Encoding", "gzip"),),
    )


def _send(port: int, kind: Kind) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    body: Any = kind.body
    headers = {"Content-Type": "application/json", **dict(kind.headers)}
    if kind.chunk:
        starts = range(0, len(kind.body), kind.chunk)
        body = (kind.body[at : at + kind.chunk] for at in starts)
    connection.request("POST", kind.path, body, headers, encode_chunked=bool(kind.chunk))
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def _try(port: int, kind: Kind) -> tuple[float, int]:
    """The worst wait in milliseconds, and the status of the answer."""
    command = [sys.executable, "-c", _ASKING, str(port)]
    with (
        subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as asking,
        ThreadPoolExecutor(kind.connections) as callers,
    ):
        assert asking.stdout is not None
        asking.stdout.readline()
        time.sleep(0.05)
        statuses = [*callers.map(_send, [port] * kind.connections, [kind] * kind.connections)]
        time.sleep(0.05)
        worst, _ = asking.communicate("x")
        return float(worst), statuses[0]


def main() -> None:
    """Try all of them, or those whose names hold a word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=0, help="versions served besides")
    parser.add_argument("--only", default="", help="of kinds whose names hold this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = folder / "models"
        write_bundle(models, Spec(context=_CONTEXT))
        for number in range(options.models):
            name, version = f"other-{number // 10}", str(number % 10 + 1)
            write_bundle(models, Spec(name=name, version=version, context=_CONTEXT))
        port = free_port()
        command = [sys.executable, "-m", "foretell", "serve", "--models", str(models)]
        command += ["--device", "cpu", "--port", str(port)]
        if options.models:
            command += ["--load", "on-demand"]
        environment = {"PYTHONPATH": str(ROOT), "FORETELL_LOG_LEVEL": "error"}
        ready, log = f"http://127.0.0.1:{port}/readyz", folder / "log"
        with running(command, ready, log, environment, folder):
            if not all([*(_report(port, kind) for kind in kinds() if options.only in kind.name)]):
                sys.exit(1)


def _report(port: int, kind: Kind) -> bool:
    tries = [_try(port, kind) for _ in range(_TRIES)]
    worst = min(wait for wait, _ in tries)
    print(
        f"{worst:6.1f} ms  {len(kind.body) / 1e6:5.2f} MB  {tries[0][1]}  {kind.name}", flush=True
    )
    return worst <= _LIMIT_MS


if __name__ == "__main__":
    main()
