from __future__ import annotations

import pytest

from foretell.service.cuda.replays import bucket_sizes


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (8, (1, 2, 4, 8)),
        (12, (1, 2, 4, 8, 12)),
        (33, (1, 2, 4, 8, 16, 32, 33)),
    ],
)
def test_sizes(largest: int, sizes: tuple[int, ...]) -> None:
    assert bucket_sizes(largest) == sizes
