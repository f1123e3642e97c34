"""A Prometheus on a server that runs here, with the files of `deploy/` but for shorter times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.files import DEPLOY
from tests.support.process import Program


class Prometheus(Program):
    """Debian's `prometheus`, on a free port of this host.

    Args:
        server: Of the service, such as `http://127.0.0.1:8000`.
        folder: Takes its files.
        interval: Between scrapes, and between evaluations of the rules.
        pending: How long an alert's condition has to hold.

    Attributes:
        url: Its own.
    """

    def __init__(self, server: str, folder: Path, *, interval: str, pending: str) -> None:
        configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        configuration["global"] = dict.fromkeys(
            ("scrape_interval", "scrape_timeout", "evaluation_interval"), interval
        )
        [job] = configuration["scrape_configs"]
        job["static_configs"] = [{"targets": [server.removeprefix("http://")]}]
        for name in configuration["rule_files"]:
            rules = yaml.safe_load((DEPLOY / name).read_text())
            for rule in (rule for group in rules["groups"] for rule in group["rules"]):
                rule["for"] = pending
            (folder / name).write_text(yaml.safe_dump(rules))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        super().__init__(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            folder / "prometheus.log",
            r'"Listening on" address=(\S+)',
        )
        self.url = f"http://{self.address}"
        self._client = httpx.Client(base_url=f"{self.url}/api/v1")

    def ask(self, path: str, **parameters: str | float) -> Any:
        """What its API answers, at `path` under `/api/v1/`.

        Raises:
            ValueError: it finds fault with the question.
        """
        answer = self._client.get(path, params=parameters).json()
        if answer["status"] != "success":
            raise ValueError(f"{parameters}: {answer['error']}")
        return answer["data"]

    def values(self, expression: str) -> list[float]:
        """What a query has now, by series."""
        found = self.ask("query", query=expression)["result"]
        return [float(series["value"][1]) for series in found]

    def alerts(self) -> dict[str, str]:
        """State of the alerts that are pending or firing, by name."""
        found = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self.stop()
