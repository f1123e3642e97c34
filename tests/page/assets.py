"""Fetch the libraries of the page from npm: `make page-assets`.

`service/page/vendor/assets.json` names every file with its package and version. A file must match
its sum. For another version, change the version and remove the sums of its files.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import urllib.request
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "service" / "page" / "vendor"
REGISTRY = "https://registry.npmjs.org"


def fetch(package: str, version: str) -> tarfile.TarFile:
    """A package's archive of npm."""
    url = f"{REGISTRY}/{package}/-/{package.rpartition('/')[2]}-{version}.tgz"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return tarfile.open(fileobj=io.BytesIO(answer.read()))


def main() -> None:
    """Write every file, and sums of files that had none."""
    listing = VENDOR / "assets.json"
    packages = json.loads(listing.read_text())
    for package in packages:
        with fetch(package["name"], package["version"]) as published:
            for asset in package["files"]:
                member = published.extractfile(f"package/{asset['from']}")
                assert member is not None, asset
                data = member.read()
                found = hashlib.sha256(data).hexdigest()
                if asset.setdefault("sha256", found) != found:
                    raise SystemExit(f"{asset['file']}: its sum is now {found}")
                (VENDOR / asset["file"]).parent.mkdir(parents=True, exist_ok=True)
                (VENDOR / asset["file"]).write_bytes(data)
    listing.write_text(json.dumps(packages, indent=2) + "\n")


if __name__ == "__main__":
    main()
