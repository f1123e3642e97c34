import pytest

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.errors import ImporterError
from foretell.importers.patches import add_patches
from foretell.importers.registry import CODE_BASES


def complete(patches: int | None, source: str = "patchtst", **values: object) -> Arguments:
    arguments: Arguments = {name: Argument(value, "given") for name, value in values.items()}
    sizes = {} if patches is None else {"flattened": patches * 8, "d_model": 8}
    add_patches(arguments, sizes, CODE_BASES[source])
    return arguments


def found(arguments: Arguments) -> dict[str, object]:
    return {name: known.value for name, known in arguments.items() if known.provenance != "given"}


@pytest.mark.parametrize("patches", [None, 42])
def test_nothing_without_the_context(patches: int | None) -> None:
    assert found(complete(patches, patch_len=16)) == {}


@pytest.mark.parametrize(("patches", "padding"), [(42, "end"), (41, "None")])
def test_padding_of_a_known_stride(patches: int, padding: str) -> None:
    arguments = complete(patches, seq_len=336, patch_len=16, stride=8)
    assert found(arguments) == {"padding_patch": padding}
    assert arguments["padding_patch"].provenance == "the file's number of patches"


def test_stride_of_a_known_padding() -> None:
    arguments = complete(42, seq_len=336, patch_len=16, padding_patch="end")
    assert found(arguments) == {"stride": 8}


def test_several_strides_are_left_open() -> None:
    # 20 // 7, 20 // 8, 20 // 9 and 20 // 10 are all 2.
    assert found(complete(4, seq_len=36, patch_len=16, padding_patch="end")) == {}


def test_several_strides_where_the_code_fixes_it() -> None:
    arguments = complete(4, "tslib", seq_len=36, patch_len=16, padding_patch="end")
    assert found(arguments) == {"stride": 8}
    assert arguments["stride"].provenance == "fixed in the Time-Series-Library"


def test_another_stride_than_the_code_fixes() -> None:
    arguments = complete(22, "tslib", seq_len=336, patch_len=16, padding_patch="end")
    assert found(arguments) == {"stride": 16}


def test_refuses_what_cannot_be() -> None:
    with pytest.raises(
        ImporterError, match=r"has 40 patches, which seq_len 336 \(given\), .* stride 8 .* rule out"
    ):
        complete(40, seq_len=336, patch_len=16, stride=8)
