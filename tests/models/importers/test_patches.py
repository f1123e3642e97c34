import pytest

from foretell.models.importers.arguments import Facts, Known
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.patches import complete_patches
from foretell.models.importers.sources import CODE_BASES


def complete(patches: int | None, source: str = "patchtst", **values: object) -> Facts:
    facts: Facts = {name: Known(value, "given") for name, value in values.items()}  # type: ignore[arg-type]
    complete_patches(facts, patches, CODE_BASES[source])  # type: ignore[index]
    return facts


def found(facts: Facts) -> dict[str, object]:
    return {name: known.value for name, known in facts.items() if known.origin != "given"}


@pytest.mark.parametrize("patches", [None, 42])
def test_nothing_without_the_context(patches: int | None) -> None:
    assert found(complete(patches, patch_len=16)) == {}


@pytest.mark.parametrize(("patches", "padding"), [(42, "end"), (41, "None")])
def test_padding_of_a_known_stride(patches: int, padding: str) -> None:
    facts = complete(patches, seq_len=336, patch_len=16, stride=8)
    assert found(facts) == {"padding_patch": padding}
    assert facts["padding_patch"].origin == "the file's number of patches"


def test_stride_of_a_known_padding() -> None:
    facts = complete(42, seq_len=336, patch_len=16, padding_patch="end")
    assert found(facts) == {"stride": 8}


def test_several_strides_are_left_open() -> None:
    # 20 // 7, 20 // 8, 20 // 9 and 20 // 10 are all 2.
    assert found(complete(4, seq_len=36, patch_len=16, padding_patch="end")) == {}


def test_several_strides_where_the_code_fixes_it() -> None:
    facts = complete(4, "tslib", seq_len=36, patch_len=16, padding_patch="end")
    assert found(facts) == {"stride": 8}
    assert facts["stride"].origin == "fixed in the Time-Series-Library"


def test_another_stride_than_the_code_fixes() -> None:
    facts = complete(22, "tslib", seq_len=336, patch_len=16, padding_patch="end")
    assert found(facts) == {"stride": 16}


def test_refuses_what_cannot_be() -> None:
    with pytest.raises(
        ImporterError, match=r"has 40 patches, which seq_len 336 \(given\), .* stride 8 .* rule out"
    ):
        complete(40, seq_len=336, patch_len=16, stride=8)
