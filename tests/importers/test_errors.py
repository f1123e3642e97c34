from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError

from foretell.importers.errors import explained


class Arguments(BaseModel):
    heads: int
    kind: Literal["a"]


def test_fields_are_named_and_missing_ones_show_nothing_else() -> None:
    with pytest.raises(ValidationError) as caught:
        Arguments.model_validate({"kind": "b"})
    assert explained(caught.value) == (
        "its arguments do not fit together: heads: Field required; kind 'b': Input should be 'a'"
    )
