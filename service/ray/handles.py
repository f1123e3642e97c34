"""What is used of Ray Serve's handles, which are calls of deployments, wherever these are."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol


class Response(Protocol):
    """A `ray.serve.handle.DeploymentResponse`."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for what the method returns, or raises."""

    def cancel(self) -> None:
        """Give it up, where it waits or where it runs."""


class Handle(Protocol):
    """A `ray.serve.handle.DeploymentHandle`."""

    def options(self, *, method_name: str, multiplexed_model_id: str = "") -> Handle:
        """The same for a method, preferably of replicas that hold a model."""

    def remote(self, *given: object) -> Response:
        """Call the method."""
