"""Bodies of answers, read with a limit of time and of size."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx

from foretell.storage.errors import StorageError

# Time for a small body.
_SECONDS = 60.0
_MAX_BYTES = 4 * 1024 * 1024


def pieces(response: httpx.Response, place: str, seconds: float) -> Iterator[bytes]:
    """Read a body in pieces, as they come.

    Args:
        response: An answer whose body is not read.
        place: Name of what is read, for messages.
        seconds: Time for the whole body.

    Raises:
        StorageError: the body breaks off, or is not complete in time.
    """
    end = time.monotonic() + seconds
    try:
        # With a size of pieces, httpx would wait until one is full.
        for piece in response.iter_raw():
            if time.monotonic() > end:
                raise StorageError(f"{place}: not complete after {seconds:.0f} seconds")
            yield piece
    except httpx.TransportError as error:
        raise StorageError(f"{place}: {unreachable(error)}") from None


def small(response: httpx.Response, place: str) -> bytes:
    """Read a body of at most 4 MiB.

    Raises:
        StorageError: it is larger, or as `pieces`.
    """
    content = bytearray()
    for piece in pieces(response, place, _SECONDS):
        content += piece
        if len(content) > _MAX_BYTES:
            raise StorageError(f"{place}: the answer is larger than {_MAX_BYTES // 1024**2} MiB")
    return bytes(content)


def fields(response: httpx.Response, place: str) -> dict[str, object]:
    """Read a small body with a JSON object.

    Raises:
        StorageError: it is something else, or as `small`.
    """
    content = small(response, place)
    try:
        found = json.loads(content)
    # Deeply nested lists are a RecursionError.
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise StorageError(f"{place}: the answer is not that of a registry")
    return found


def unreachable(error: httpx.TransportError) -> str:
    """Why a server cannot be reached, and what to do."""
    if "WRONG_VERSION_NUMBER" in str(error):
        return "the registry does not speak TLS; oci+http:// is without"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"{error}; SSL_CERT_FILE names a file of further authorities"
    reason = str(error) or type(error).__name__
    return f"cannot be reached: {reason}"
