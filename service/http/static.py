"""The page at `/` for browsers, and its files from `service/page/`."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from foretell.service.http.compression import accepted_weights, choose_encoding

FOLDER = Path(__file__).parents[1] / "page"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Their links are relative, as a proxy may serve all paths under a prefix.
_PAGES = {"/": "index.html", "/docs": "reference/docs.html"}
_HEADERS = {
    # Browsers revalidate each time, so that a page never runs with files of another release.
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_INLINE_SCRIPT = re.compile(rb"<script(?![^>]* src=)[^>]*>(.*?)</script>", re.DOTALL)
# Links that programs get at `/`.
_LINKS = {
    "forecast": "/forecast",
    "backtest": "/backtest",
    "inference": "/v2",
    "models": "/models",
    "documentation": "/docs",
    "openapi": "/openapi.json",
}


def policy(html: bytes) -> str:
    """The Content-Security-Policy of a page: this server's files, and the page's inline scripts.

    An inline script is named by its hash. The only one is the import map, which cannot be a file.
    """
    digests = (hashlib.sha256(script).digest() for script in _INLINE_SCRIPT.findall(html))
    hashes = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return _POLICY.format(scripts=" ".join(["'self'", *hashes]))


def _read(path: Path) -> tuple[dict[str, str], bytes, bytes]:
    """The headers of a file, its bytes, and its compressed bytes."""
    data = path.read_bytes()
    # Weak, because compressed and uncompressed answers share it.
    tag = f'W/"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {**_HEADERS, "Content-Type": _TYPES[path.suffix], "ETag": tag}
    if path.suffix == ".html":
        headers["Content-Security-Policy"] = policy(data)
    return headers, data, gzip.compress(data, mtime=0)


class Pages:
    """The files for browsers; their `paths` need no key."""

    def __init__(self) -> None:
        files = (file for file in FOLDER.rglob("*") if file.suffix in _TYPES.keys() - {".html"})
        self._files = {path: FOLDER / name for path, name in _PAGES.items()}
        self._files |= {f"/page/{file.relative_to(FOLDER).as_posix()}": file for file in files}
        self.paths = frozenset(self._files)
        # Each file is read and compressed at its first request.
        self._loaded: dict[str, tuple[dict[str, str], bytes, bytes]] = {}

    async def response(self, request: Request) -> Response:
        """The answer to a request for a file; HTTPException if the file does not exist."""
        path: str = request.scope["path"]
        if path not in self._loaded:
            if path not in self._files:
                raise HTTPException(404)
            self._loaded[path] = await asyncio.to_thread(_read, self._files[path])
        headers, data, compressed = self._loaded[path]
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if choose_encoding(request.headers.get("accept-encoding", ""), ("gzip",)) is None:
            return Response(data, headers=headers)
        return Response(compressed, headers={**headers, "Content-Encoding": "gzip"})


def page_router(pages: Pages, root_path: str) -> APIRouter:
    """The routes of the page, its files and an index for programs, with links under `root_path`."""
    router = APIRouter(tags=["models"])
    links = {name: root_path + path for name, path in _LINKS.items()}
    document = {"service": "foretell", "links": links}

    @router.get(
        "/",
        response_class=Response,
        responses={200: {"content": {"application/json": {"example": document}, "text/html": {}}}},
    )
    async def index(request: Request) -> Response:
        """Links to the service; browsers get a page to try models with."""
        weights = accepted_weights(request.headers.get("accept", ""))
        if weights.get("text/html", 0.0) > weights.get("application/json", 0.0):
            return await pages.response(request)
        return JSONResponse(document, headers={"Vary": "Accept"})

    for path in ("/docs", "/page/{path:path}"):
        router.add_api_route(path, pages.response, include_in_schema=False, response_model=None)
    return router
