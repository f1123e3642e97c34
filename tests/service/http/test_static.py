from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from foretell.service.http import static
from foretell.service.http.static import FOLDER, Pages, policy
from tests.service.client import Client

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Encoding": "gzip"}
VENDOR = FOLDER / "vendor"
MOST_BYTES = 400_000


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        (BROWSER["Accept"], True),
        ("text/html; q=0.9, application/json; q=0.2", True),
        ("text/html;level=1", True),
        ("*/*", False),
        ("application/json, text/html;q=0.1", False),
        ("text/html;q=0", False),
    ],
)
def test_browsers_get_the_page_and_programs_the_index(
    client: Client, accept: str, is_page: bool
) -> None:
    answer = client.request("GET", "/", headers={"Accept": accept})
    assert "Accept" in answer.headers["vary"]
    if is_page:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.text == (FOLDER / "index.html").read_text()
    else:
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["service"] == "foretell"


def test_policy_allows_only_the_servers_own_files(client: Client) -> None:
    page = client.request("GET", "/", headers=BROWSER)
    [inline] = re.findall(r"<script type=\"importmap\">(.*?)</script>", page.text, re.DOTALL)
    known = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
    policy_sent = page.headers["content-security-policy"]
    assert policy_sent == (
        f"default-src 'none'; script-src 'self' 'sha256-{known}'; style-src 'self'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    # Scripts that are files have no sum.
    assert "script-src 'self';" in policy(b'<script type="module" src="x.js"></script>')


def test_reference_loads_nothing_from_other_hosts(client: Client) -> None:
    answer = client.get("/docs")
    policy_sent = answer.headers["content-security-policy"]
    assert policy_sent.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy_sent
    assert "://" not in policy_sent + answer.text
    named = re.findall(r'(?:href|src)="([^"]+)"', answer.text)
    assert len(named) == 4
    for name in named:
        assert client.get(f"/{name}").status_code == 200, name
    script = client.get("/page/reference/docs.js").text
    assert "'openapi.json'" in script
    assert "validatorUrl: null" in script


def test_files_of_the_page_exist(client: Client) -> None:
    html = (FOLDER / "index.html").read_text()
    named = re.findall(r'(?:href|src)="(page/[^"]+)"', html)
    [imports] = re.findall(r"importmap\">(.*?)</script>", html, re.DOTALL)
    named += [path.removeprefix("./") for path in json.loads(imports)["imports"].values()]
    assert len(named) > 10
    for path in named:
        assert client.get(f"/{path}").status_code == 200, path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("app.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/preact.mjs", "text/javascript; charset=utf-8"),
        ("vendor/assets.json", "application/json"),
        ("vendor/licences/htm.txt", "text/plain; charset=utf-8"),
    ],
)
def test_type_and_headers_of_a_file(client: Client, name: str, kind: str) -> None:
    answer = client.request("GET", f"/page/{name}", headers=BROWSER)
    assert answer.headers["content-type"] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in answer.headers["vary"]
    assert answer.content == (FOLDER / name).read_bytes()
    plain = client.request("GET", f"/page/{name}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answer.content


def test_cached_file_is_answered_with_304(client: Client) -> None:
    first = client.get("/page/app.js")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    for given, status in ((f'"other", {tag}', 304), ('"other"', 200)):
        answer = client.request("GET", "/page/app.js", headers={"If-None-Match": given})
        assert (answer.status_code, answer.headers["etag"]) == (status, tag)
        assert answer.content == (b"" if status == 304 else first.content)
    # Ranges are not supported.
    answer = client.request("GET", "/page/app.js", headers={"Range": "bytes=0-5000"})
    assert (answer.status_code, answer.content) == (200, first.content)
    assert "content-range" not in answer.headers
    assert client.request("HEAD", "/page/app.js").status_code == 200


def test_file_is_read_and_compressed_once(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(FOLDER, folder)
    monkeypatch.setattr(static, "FOLDER", folder)
    compressed: list[int] = []
    compress = gzip.compress

    def note(data: bytes, **options: int) -> bytes:
        compressed.append(len(data))
        return compress(data, **options)

    monkeypatch.setattr(static.gzip, "compress", note)
    with Client(models) as client:
        assert not compressed
        first = client.request("GET", "/", headers=BROWSER)
        script = client.get("/page/app.js")
        # Replace the files with those of another release.
        (folder / "index.html").write_text(first.text.replace("importmap", "importmap ") + "new")
        (folder / "app.js").unlink()
        again = client.request("GET", "/", headers=BROWSER)
        assert again.text == first.text
        assert policy(again.content) == again.headers["content-security-policy"]
        assert client.get("/page/app.js").content == script.content
    assert compressed == [len(first.content), len(script.content)]


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/",
        "/page/vendor",
        "/page/no.js",
        # Relative URLs of the page would be wrong there.
        "/page/index.html",
        "/page/%2e%2e/settings.py",
        "/page//etc/passwd",
        "/page/vendor/..%2fapp.js",
    ],
)
def test_no_other_file_is_served(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found"


def test_libraries_equal_the_published_ones() -> None:
    packages = json.loads((VENDOR / "assets.json").read_text())
    listed = {asset["file"]: asset for package in packages for asset in package["files"]}
    found = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    assert found == {*listed, "assets.json"}
    for name, asset in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == asset["sha256"], name
    for package in packages:
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["licence"]
        assert any(asset["file"].startswith("licences/") for asset in package["files"])


def test_page_and_its_files_are_small() -> None:
    html = "".join(path.read_text() for path in (FOLDER / "reference").glob("*.html"))
    others = set(re.findall(r'"(page/vendor/[^"]+)"', html))
    files = {path.removeprefix("/") for path in Pages().paths if path.startswith("/page/")}
    loaded = {name for name in files - others if "/reference/" not in name}
    assert len(loaded) > 10
    assert len(others) == 2
    sizes = [
        len(gzip.compress((FOLDER / name.removeprefix("page/")).read_bytes())) for name in loaded
    ]
    assert sum(sizes) + len((FOLDER / "index.html").read_bytes()) < MOST_BYTES
