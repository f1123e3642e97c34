"""Try an image: a server that a command starts answers a forecast.

`python -m tests.deploy.trial --port 8123 docker run …`, where a word of the command has `MODELS` in
place of the folder of a small bundle. The command must run until it gets SIGTERM.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.support.bundles import Spec, write_bundle

START_SECONDS = 120
STOP_SECONDS = 60


def wait_until_ready(server: subprocess.Popen[bytes], client: httpx.Client) -> None:
    """Wait for the server's models.

    Raises:
        SystemExit: The command has ended, or the server is not ready in time.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"the command ended with status {server.returncode}")
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    sys.exit(f"the server was not ready within {START_SECONDS} seconds")


def request_forecast(client: httpx.Client) -> None:
    """Compare one forecast with the value worked out by hand.

    Raises:
        SystemExit: The answer differs.
    """
    answer = client.post("/forecast", json={"inputs": [{"series": [1.0] * 7 + [3.0]}]})
    if answer.status_code != 200:
        sys.exit(f"{answer.status_code}: {answer.text}")
    # The model repeats the last value.
    if answer.json()["outputs"][0]["content"][0]["mean_forecast"] != [3.0] * 4:
        sys.exit(f"expected four times 3.0, got {answer.text}")


def main() -> None:
    """Start the command, request a forecast and end the command."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True, help="where the server listens")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        models = Path(name)
        write_bundle(models, Spec())
        # User 10001 of the image reads it.
        for path in (models, *models.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        command = [word.replace("MODELS", name) for word in options.command]
        client = httpx.Client(base_url=f"http://127.0.0.1:{options.port}", timeout=10)
        with client, subprocess.Popen(command) as server:
            try:
                wait_until_ready(server, client)
                request_forecast(client)
            finally:
                server.terminate()
                server.wait(STOP_SECONDS)
    sys.stdout.write("the image answers a forecast\n")


if __name__ == "__main__":
    main()
