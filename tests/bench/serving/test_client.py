from __future__ import annotations

import asyncio

import pytest

from bench.serving.client import BROKEN, Client, request


async def _answering(*answers: bytes) -> asyncio.Server:
    """A server that gives these answers in turn, then hangs up."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
            writer.write(left.pop(0))
            await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def _answer(status: int) -> bytes:
    return f"HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\n{{}}".encode()


@pytest.mark.parametrize(("answers", "statuses"), [([200, 429], {200: 1, 429: 1, BROKEN: 1})])
def test_every_request_has_one_outcome(answers: list[int], statuses: dict[object, int]) -> None:
    async def run() -> Client:
        server = await _answering(*map(_answer, answers))
        port = server.sockets[0].getsockname()[1]
        client = Client(port, [request("/forecast", b"[1]")])
        async with server:
            for _ in range(3):
                await client.send()
            await client.close()
        return client

    outcomes = asyncio.run(run()).outcomes
    assert dict(outcomes.statuses) == statuses
    assert len(outcomes.accepted) == 1


def test_percentile_of_the_accepted() -> None:
    client = Client(1, [b""])
    client.outcomes.accepted.extend(float(value) for value in range(100))
    assert client.outcomes.percentile(0.99) == 99.0
    assert client.outcomes.percentile(0.5) == 50.0
