from __future__ import annotations

import pytest

from bench.gpu.faults import noting


def raised(error: Exception, cause: Exception | None = None) -> str:
    faults: list[str] = []
    with noting(faults, "here"):
        raise error from cause
    (fault,) = faults
    return fault


def test_a_fault_is_one_line_with_its_cause() -> None:
    assert raised(ValueError("so\n  it is")) == "here: so it is"
    assert raised(ValueError("so"), OSError("as")) == "here: so: as"
    assert raised(ValueError("so: as"), OSError("as")) == "here: so: as"
    assert raised(ValueError()) == "here: ValueError"


def test_who_ends_the_program_does() -> None:
    with pytest.raises(KeyboardInterrupt), noting([], "here"):
        raise KeyboardInterrupt
