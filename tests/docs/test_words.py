"""Plain English: words and openings that CONTRIBUTING.md refuses.

`REFUSED` has a reason for each pattern; the messages of a failure name the places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.sentences import PRODUCT, Sentence, of_documents, of_folder

EVERYWHERE = ("document", "docstring", "comment", "message")
IN_CODE = ("docstring", "comment", "message")
# Each pattern with the kinds of text where it is refused, and the reason.
REFUSED = {
    r"\b(said|told)\b": (EVERYWHERE, "programs return, send and contain"),
    r"\b(is|are|was|were|be|been) asked\b": (EVERYWHERE, "name the request"),
    r"\b(nobody|somebody|everybody|someone|whoever)\b": (EVERYWHERE, "name the caller or program"),
    r"\b(those|it|one|process|worker|server|client|model) who\b": (EVERYWHERE, "it, not who"),
    r"\b(is|are|was|were) to be\b": (EVERYWHERE, "must be, or will be"),
    r"\b(is|are) none\b": (EVERYWHERE, "is not a …, or has no …"),
    r"\bso (many|much)\b(?! (as|that))": (EVERYWHERE, "name the number"),
    r"^Of\b": (EVERYWHERE, "begin with the subject"),
    r"^(Those|Theirs|That of|Likewise|The same)\b": (IN_CODE, "name the thing"),
    r"^(What|Which|Who)\b(?!.*\?)": (IN_CODE, "name the thing"),
}
AREAS = ("docs", *PRODUCT, "tests", "bench", "deploy", "locks")


def found(area: str) -> Iterator[tuple[Sentence, str]]:
    """The refused sentences of an area, with the reason."""
    for sentence in of_documents() if area == "docs" else of_folder(area):
        for pattern, (kinds, reason) in REFUSED.items():
            if sentence.kind in kinds and re.search(pattern, sentence.text):
                yield sentence, reason


@pytest.mark.parametrize("area", AREAS)
def test_sentences_are_plain(area: str) -> None:
    lines = [f"{one.place} ({reason}): {one.text}" for one, reason in found(area)]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("Of several series, those that ended are left out.", True),
        ("What the server is told.", True),
        ("The client sends it.", False),
        ("Series that have ended are left out.", False),
        ("The channels of the model.", False),
    ],
)
def test_refused_openings(text: str, is_refused: bool) -> None:
    refused = any(re.search(p, text) for p, (kinds, _) in REFUSED.items() if "docstring" in kinds)
    assert refused is is_refused
