"""Load from wrk."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType

_SCRIPT = Path(__file__).with_name("load.lua")
_TIMEOUT = 30


@dataclass(frozen=True)
class Load:
    """What wrk saw.

    Attributes:
        rate: Requests answered with success a second.
        p50: Median latency in seconds.
        p99: 99th percentile of it.
        failed: Requests that got no answer or another status than 2xx or 3xx.
    """

    rate: float
    p50: float
    p99: float
    failed: int


_JSON = MappingProxyType({"Content-Type": "application/json"})


def load(
    url: str,
    body: Path,
    connections: int,
    seconds: int,
    headers: Mapping[str, str] = _JSON,
) -> Load:
    """POST a body over and over.

    Args:
        url: Where to.
        body: A file.
        connections: Each has one request on its way at any time.
        seconds: How long.
        headers: Of each request; those of JSON if not given.

    Raises:
        RuntimeError: wrk failed.
    """
    command = ["wrk", "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{seconds}s", "--timeout", f"{_TIMEOUT}s", "--latency"]
    command += ["--script", str(_SCRIPT), url, "--", str(body), *chain(*headers.items())]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + 2 * _TIMEOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"wrk: {done.stderr or done.stdout}")
    found = json.loads(done.stdout.splitlines()[-1])
    good = found["requests"] - found["failed"]
    return Load(max(good, 0) / found["seconds"], found["p50"], found["p99"], found["failed"])
