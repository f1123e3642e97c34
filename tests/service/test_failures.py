from __future__ import annotations

import pytest

from foretell.service import errors
from foretell.service.failures import error_body, error_object, status_of


def all_errors() -> list[type[errors.ServiceError]]:
    return errors.ServiceError.__subclasses__()


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_a_status(kind: type[errors.ServiceError]) -> None:
    error = kind.__new__(kind)
    assert status_of(error) in (400, 401, 403, 404, 413, 422, 429, 499, 503, 504)


def test_types_are_distinct() -> None:
    types = [kind.type for kind in all_errors()]
    assert len(set(types)) == len(types)


def test_the_object() -> None:
    error = errors.InvalidInputError("expected this, got that", param="inputs[0]")
    assert error_object(error) == {
        "code": "422",
        "message": "expected this, got that",
        "param": "inputs[0]",
        "type": "invalid_input",
    }


@pytest.mark.parametrize("path", ["/v2", "/v2/models/nope", "/v2/"])
def test_the_inference_protocol_has_one_text(path: str) -> None:
    error = errors.InvalidInputError("expected this, got that", param="inputs[0]")
    body = error_body(path, error_object(error))
    assert body == {"error": "inputs[0]: expected this, got that"}
    assert error_body(path, error_object(errors.NotReadyError("soon"))) == {"error": "soon"}


@pytest.mark.parametrize("path", ["/forecast", "/v2x", "/", ""])
def test_other_doors_have_the_object(path: str) -> None:
    error = error_object(errors.NotReadyError("soon"))
    assert error_body(path, error) == {"error": error}
