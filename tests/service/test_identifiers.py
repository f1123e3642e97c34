from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from foretell.service.http.middleware import new_identifier


def test_identifiers_differ() -> None:
    made = [new_identifier() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)


def test_processes_make_their_own() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        made = [future.result() for future in [pool.submit(new_identifier) for _ in range(2)]]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        made.append(pool.submit(new_identifier).result())
    assert len(set(made)) == 3
