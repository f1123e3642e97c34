"""Whatever a client sends for tensors: an answer, or an error; never the server's failure."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.client import Client
from tests.service.inference.bodies import (
    HEADER,
    HISTORY,
    binary,
    infer,
    joined,
    request,
    tensor,
)
from tests.service.test_hostile_input import changed, has_surrogate

FEW = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
OUTPUTS = [
    {"name": "forecast", "parameters": {"binary_data": True}},
    {"name": "encoder.1.self.lags"},
]
# Every field of the interface, in requests that are accepted as they stand.
VALID = [
    joined(
        request(
            tensor(HISTORY.astype(int), datatype="INT64", parameters={}),
            id="7",
            parameters={"binary_data_output": True, "timeout": 10_000_000, "priority": 1},
            outputs=OUTPUTS,
        )
    ),
    joined(request(binary(), outputs=OUTPUTS[:1]), HISTORY),
    joined(
        request(binary(HISTORY.astype(np.float16), datatype="FP16")), HISTORY.astype(np.float16)
    ),
]


def check(client: Client, body: bytes, headers: dict[str, str]) -> int:
    answer = infer(client, body, headers)
    assert answer.status_code in (200, 400, 413, 422), (body[:500], headers, answer.text)
    if answer.status_code == 200:
        length = int(answer.headers.get(HEADER, len(answer.content)))
        outputs = json.loads(answer.content[:length], parse_constant=pytest.fail)["outputs"]
        sizes = [each.get("parameters", {}).get("binary_data_size", 0) for each in outputs]
        assert length + sum(sizes) == len(answer.content)
    else:
        (message,) = answer.json().values()
        assert 0 < len(message) < 1000, "an error must not send the request back"
    return answer.status_code


@pytest.mark.parametrize(("body", "headers"), VALID)
def test_the_requests_below_are_valid(client: Client, body: bytes, headers: dict[str, str]) -> None:
    assert check(client, body, headers) == 200


@FEW
@given(st.data())
def test_any_value_anywhere(client: Client, data: st.DataObject) -> None:
    body, headers = data.draw(st.sampled_from(VALID))
    length = int(headers[HEADER])
    text = json.dumps(changed(json.loads(body[:length]), data)).encode()
    check(client, text + body[length:], {HEADER: str(len(text))})


@FEW
@given(
    st.sampled_from(VALID),
    st.integers(0, 2000),
    st.binary(max_size=6),
    st.integers(0, 40),
    st.integers(-3, 3),
    st.sampled_from([None, "gzip"]),
)
def test_any_damage_to_the_bytes(
    client: Client,
    valid: tuple[bytes, dict[str, str]],
    at: int,
    put: bytes,
    cut: int,
    shift: int,
    encoding: str | None,
) -> None:
    body, headers = valid
    at %= len(body)
    body = body[:at] + put + body[at + cut :]
    headers = {HEADER: str(int(headers[HEADER]) + shift)}
    if encoding is not None:
        # Half of the time, the damage is done to what was compressed.
        body = gzip.compress(body) if shift % 2 else gzip.compress(valid[0])[: -1 - at % 40] + put
        headers["Content-Encoding"] = encoding
    check(client, body, headers)


@FEW
@given(st.binary(max_size=300), st.sampled_from(["0", "", "1", "64", "300", "-1", "x", "1e1"]))
def test_any_bytes(client: Client, body: bytes, length: str) -> None:
    check(client, body, {HEADER: length})


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_is_echoed(client: Client, text: str) -> None:
    answer = infer(client, request(id=text))
    if has_surrogate(text):
        assert answer.status_code == 400
    else:
        assert answer.json()["id"] == text
