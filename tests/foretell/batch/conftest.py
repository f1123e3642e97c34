from tests.service.conftest import client, models

__all__ = ["client", "models"]
