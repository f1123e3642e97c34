"""What browsers are shown: the page at `/` and the files it loads, those of `service/page/`."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from foretell.service.http.compression import accepted_weights, choose_encoding

FOLDER = Path(__file__).parents[1] / "page"

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
_INLINE = re.compile(rb"<script(?![^>]* src=)[^>]*>(.*?)</script>", re.DOTALL)
# Their URLs of other files are relative, for a proxy may put a prefix before all of them.
_PAGES = {
    "/": "index.html",
    "/docs": "reference/docs.html",
}

# What programs find at the page's address.
_LINKS = {
    "forecast": "/forecast",
    "backtest": "/backtest",
    "inference": "/v2",
    "models": "/models",
    "documentation": "/docs",
    "openapi": "/openapi.json",
}


@dataclass(frozen=True)
class Asset:
    """A file that is served.

    Attributes:
        plain: Its bytes.
        compressed: They, by gzip.
        headers: Of every answer with it.
    """

    plain: bytes
    compressed: bytes
    headers: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Asset:
        """A file of the folder, compressed as far as it goes."""
        data = path.read_bytes()
        headers = {
            "Content-Type": _KINDS[path.suffix],
            # Weak, for it is the same whether the bytes are compressed or not.
            "ETag": f'W/"{hashlib.sha256(data).hexdigest()[:32]}"',
            # Asked for each time, so that a page never runs with files of another release.
            "Cache-Control": "no-cache",
            "Vary": "Accept, Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        if path.suffix == ".html":
            headers["Content-Security-Policy"] = policy(data)
        return cls(data, gzip.compress(data, mtime=0), headers)

    def answer(self, request: Request) -> Response:
        """What a request for it is answered."""
        if self.headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=self.headers)
        if choose_encoding(request.headers.get("accept-encoding", ""), ("gzip",)) is None:
            return Response(self.plain, headers=self.headers)
        return Response(self.compressed, headers=self.headers | {"Content-Encoding": "gzip"})


def policy(html: bytes) -> str:
    """What a page may load and do: what this server gives it, and the scripts within itself.

    Those within are an import map, which cannot be a file of its own.
    """
    sums = (base64.b64encode(hashlib.sha256(found).digest()) for found in _INLINE.findall(html))
    scripts = [_POLICY["script-src"], *(f"'sha256-{each.decode()}'" for each in sums)]
    directives = {**_POLICY, "script-src": " ".join(scripts)}
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


class Pages:
    """The files that may be asked for, and no others; each is read when it first is.

    Attributes:
        paths: Where they are found; everybody may read them.
    """

    def __init__(self) -> None:
        files = [path for path in FOLDER.rglob("*") if path.suffix in _KINDS]
        self._files = {page: FOLDER / name for page, name in _PAGES.items()}
        self._files |= {
            f"/page/{path.relative_to(FOLDER).as_posix()}": path
            for path in files
            if path.suffix != ".html"
        }
        self.paths = frozenset(self._files)
        self._read: dict[str, Asset] = {}

    async def answer(self, request: Request) -> Response:
        """What a request for a file is answered.

        Raises:
            HTTPException: there is none of that path.
        """
        path: str = request.scope["path"]
        if path not in self._read:
            if path not in self._files:
                raise HTTPException(404)
            self._read[path] = await asyncio.to_thread(Asset.read, self._files[path])
        return self._read[path].answer(request)


def page_router(pages: Pages, root_path: str) -> APIRouter:
    """The routes for people: the page, which to programs is an index, and its files.

    Args:
        pages: What browsers get.
        root_path: The prefix of the service's paths.
    """
    router = APIRouter(tags=["models"])
    links = {name: root_path + path for name, path in _LINKS.items()}
    found = {"service": "foretell", "links": links}

    @router.get(
        "/",
        response_class=Response,
        responses={200: {"content": {"application/json": {"example": found}, "text/html": {}}}},
    )
    async def index(request: Request) -> Response:
        """Where to go from here; browsers get a page to try models with."""
        wanted = accepted_weights(request.headers.get("accept", ""))
        if wanted.get("text/html", 0.0) > wanted.get("application/json", 0.0):
            return await pages.answer(request)
        return JSONResponse(found, headers={"Vary": "Accept"})

    async def file(request: Request) -> Response:
        return await pages.answer(request)

    for path in ("/docs", "/page/{path:path}"):
        router.add_api_route(path, file, include_in_schema=False)

    return router
