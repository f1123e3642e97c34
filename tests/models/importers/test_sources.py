from typing import get_args

from foretell.models.architectures import ARCHITECTURES
from foretell.models.importers.arguments import ARGUMENTS
from foretell.models.importers.layouts import LAYOUTS, Source
from foretell.models.importers.sources import CODE_BASES


def test_every_source_has_a_layout_for_each_of_its_architectures() -> None:
    assert set(CODE_BASES) == set(get_args(Source))
    for source, code in CODE_BASES.items():
        assert set(code.architectures) <= set(ARCHITECTURES)
        found = {layout.architecture for layout in LAYOUTS if source in layout.sources}
        assert found == set(code.architectures)


def test_constants_and_defaults_are_arguments() -> None:
    for code in CODE_BASES.values():
        for name, value in (code.constants | code.defaults).items():
            assert ARGUMENTS[name].read(str(value)) == value
