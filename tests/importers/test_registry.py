import subprocess
import sys
from collections.abc import Iterator
from itertools import chain

import pytest

from foretell.importers.code_base import Architecture, CodeBase
from foretell.importers.registry import ALIASES, ARCHITECTURES, CODE_BASES, OPTIONS
from foretell.models import forecaster

ENTRIES = [
    pytest.param(code, each, id=f"{code.name}-{each.name}")
    for code in CODE_BASES.values()
    for each in code.architectures
]


def fields(architecture: Architecture) -> Iterator[str]:
    return (name for name in architecture.fields.values() if name is not None)


def test_every_architecture_is_one_of_ours() -> None:
    assert set(ARCHITECTURES) <= set(forecaster.ARCHITECTURES)


@pytest.mark.parametrize(("code", "architecture"), ENTRIES)
def test_fields_are_those_of_the_config(code: CodeBase, architecture: Architecture) -> None:
    config = forecaster.ARCHITECTURES[architecture.name]
    assert set(fields(architecture)) <= set(config.model_fields)
    assert set(architecture.only_with) <= set(architecture.fields)
    assert architecture.layouts


@pytest.mark.parametrize("code", CODE_BASES.values(), ids=CODE_BASES)
def test_constants_and_defaults_are_values_of_options(code: CodeBase) -> None:
    for name, value in chain(code.constants.items(), code.defaults.items(), code.usual.items()):
        if name in OPTIONS:
            assert OPTIONS[name].read(str(value)) == value
        else:
            assert any(name in each.fields for each in code.architectures)


def test_every_alias_is_of_an_option() -> None:
    assert set(ALIASES.values()) <= set(OPTIONS)
    assert not set(ALIASES) & set(OPTIONS)


def test_no_option_has_two_meanings() -> None:
    for code in CODE_BASES.values():
        assert all(OPTIONS[name] is option for name, option in code.options.items())


def test_the_command_line_pays_for_no_torch() -> None:
    script = "import sys, foretell.importers.registry; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
