from __future__ import annotations

import numpy as np
import pytest

from service.cuda.buckets import bucket_for, bucket_sizes, fill


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


def test_filled_rows_repeat_the_last() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    filled = fill(rows, 5)
    np.testing.assert_array_equal(filled, [[0, 1], [2, 3], [4, 5], [4, 5], [4, 5]])
    assert fill(rows, 3) is rows


def test_what_is_copied_to_a_gpu_is_contiguous() -> None:
    assert fill(np.ones((4, 6), np.float32)[:, ::2], 4).flags.c_contiguous
