"""The pages of docs/reference/ are what the code says."""

from __future__ import annotations

from foretell.service.settings import Settings
from tests.docs.reference import FOLDER, pages


def test_reference_is_made_from_this_code() -> None:
    made = pages()
    written = {name: (FOLDER / name).read_text() for name in made}
    assert written == made, "run: make reference"


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
