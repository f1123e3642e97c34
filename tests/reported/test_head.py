"""Probes by HEAD (Kludex/fastapi-health#18)."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server

_OTHERS = ("/docs", "/", "/openapi.json", "/page/style.css", "/models/none", "/nowhere")


def test_every_route_of_get_answers_head(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    with (
        Server(tmp_path / "models", tmp_path / "log", threads=1) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        document = client.get("/openapi.json").json()
        paths = {
            path.format(model="repeat", name="repeat", model_name="repeat", version="1", id="1")
            for path, operations in document["paths"].items()
            if "get" in operations
        }
        assert len(paths) > 10
        for path in sorted(paths | set(_OTHERS)):
            got, head = client.get(path), client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert head.headers["content-type"] == got.headers["content-type"], path
        for path in ("/v2/health/ready", "/v2/health/live", "/readyz", "/healthz"):
            assert client.head(path).status_code == 200
        assert client.head("/forecast").status_code == 405
    assert '"method":"HEAD"' in (tmp_path / "log").read_text()
