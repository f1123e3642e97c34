from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.bundle.covariates import Covariate, Covariates
from tests.support.bundles import Spec, softmax_stage, write_bundle
from tests.support.process import Server

# The extra `mcp` may be absent.
pytest.importorskip("mcp")

SHOP = Spec(
    name="shop",
    covariates=Covariates(
        future=(
            Covariate(name="discount"),
            Covariate(name="sky", type="category", categories=("rain", "sun")),
        )
    ),
)


@pytest.fixture(scope="package")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    write_bundle(folder, Spec(name="calibrated", stages=(softmax_stage(),), calibrated=3))
    write_bundle(folder, Spec(name="pair", channels=("load", "wind"), with_calendar=True))
    write_bundle(folder, Spec(name="wide", channels=tuple(f"c{each}" for each in range(300))))
    write_bundle(folder, SHOP)
    return folder


@pytest.fixture(scope="package")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of one process."""
    log = tmp_path_factory.mktemp("log") / "log"
    with Server(repository, log, mcp="true") as server:
        yield server
