"""Requests that the OpenAPI document allows, and some it does not, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import BaseSchema, Case, GenerationMode, checks

from tests.support.process import Server


@pytest.fixture(scope="module")
def document(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    with Server(models, tmp_path_factory.mktemp("log") / "log") as server:
        yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_as_documented(document: BaseSchema, mode: GenerationMode) -> None:
    operations = [found.ok() for found in document.get_all_operations()]
    if mode is GenerationMode.NEGATIVE:
        # Other routes have no parameters that could be wrong.
        operations = [each for each in operations if each.body or list(each.iter_parameters())]
    assert operations
    for operation in operations:

        @settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def answers(case: Case) -> None:
            case.call_and_validate(
                checks=[
                    checks.not_a_server_error,
                    checks.status_code_conformance,
                    checks.content_type_conformance,
                    checks.response_headers_conformance,
                    checks.response_schema_conformance,
                ]
            )

        answers()
