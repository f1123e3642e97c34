from __future__ import annotations

import pytest

from foretell.service.cuda.memory import bucket_for, bucket_sizes


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


def test_every_batch_has_the_smallest_bucket_it_fits() -> None:
    sizes = bucket_sizes(12)
    found = [bucket_for(windows, sizes) for windows in (1, 2, 3, 5, 8, 9, 12)]
    assert found == [1, 2, 4, 8, 8, 12, 12]
