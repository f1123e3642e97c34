"""What was measured of the servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.serving.load import Load

CONNECTIONS = (1, 16, 64)
# Series in the one large request.
LARGE = 256


@dataclass
class Raw:
    """onnxruntime without a server.

    Attributes:
        rate: Windows a second with a thread a CPU, one window a run.
        latency: Median seconds of one run, alone.
    """

    rate: float
    latency: float


@dataclass
class Served:
    """One server with one model.

    Attributes:
        loads: By number of connections.
        turns: The same, turn by turn.
        share: Requests a second over most connections, as a part of the loop's windows a second.
        memory: Bytes after them, of all its processes.
        large_rate: Windows a second of one request with `LARGE` series; ours alone.
        large_turns: The same, turn by turn.
        large_share: The same as a part of the loop's.
    """

    loads: dict[int, Load] = field(default_factory=dict)
    turns: dict[int, Sequence[Load]] = field(default_factory=dict)
    share: float = 0.0
    memory: int = 0
    large_rate: float | None = None
    large_turns: Sequence[float] = ()
    large_share: float = 0.0


@dataclass
class Result:
    """Everything measured with one model.

    Attributes:
        name: The model's.
        raw: Without a server.
        served: By contender.
        skipped: Reason by contender.
    """

    name: str
    raw: Raw
    served: dict[str, Served] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
