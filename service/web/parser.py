"""Reads requests; what their callers would rather speak is not heard."""

from __future__ import annotations

from array import array

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Parser(httptools.HttpRequestParser):
    """Reads requests that offer another protocol, as Java's and curl's do, like any others.

    To llhttp such a request ends with its head, and what follows is in the other protocol. But its
    body follows: the head is read a second time, without the offer.

    Args:
        connection: Told what is read. Of an offer it is told twice; the first time, when
            `should_upgrade` says so, it is to begin nothing. If it closes, nothing more is read.
    """

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._connection = connection
        self._begin()

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Read what came.

        Raises:
            HttpParserError: it is no request.
        """
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:
                (end,) = offer.args
            if self._connection.transport.is_closing():
                return
            head = self._plain_head()
            # After the last request of a connection llhttp reads nothing, not even its head.
            self._begin()
            super().feed_data(head)
            rest = rest[end:]

    def _begin(self) -> None:
        super().__init__(self._connection)
        # As uvicorn has it: to go on sending after the last request is no error.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def _plain_head(self) -> bytes:
        target, version = self._connection.url, self.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.get_method(), target, version)]
        lines += [b"%b: %b" % line for line in self._connection.headers if line[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
