"""Config classes of plug-ins by name: each kind has a folder, and each plug-in a file."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar, cast

from pydantic import BaseModel

C = TypeVar("C", bound=BaseModel)
D = TypeVar("D", bound=BaseModel)


class Registry(Mapping[str, type[C]]):
    """The config classes of a kind; every file of its folder adds its own.

    The name of a class is the default of the field that discriminates its kind.

    Args:
        package: Package of the folder.
        field: Name of the discriminating field.
        base: Base class of the configs.
    """

    def __init__(self, package: str, field: str, base: Any) -> None:  # noqa: ANN401 - abstract
        self._package = package
        self._field = field
        self._base = base
        self._classes: dict[str, type[C]] = {}

    def add(self, config: type[D]) -> type[D]:
        """Decorator of a config class.

        Raises:
            ValueError: another one has its name.
        """
        name = config.model_fields[self._field].default
        if name in self._classes:
            raise ValueError(f"{self._field}: the name {name!r} is registered twice")
        self._classes[name] = cast("type[C]", config)
        return config

    def read(self, value: Any) -> C:  # noqa: ANN401 - whatever a file has there
        """A config from its fields, or from its name alone.

        Raises:
            ValueError: none has that name.
            ValidationError: a field is wrong.
        """
        if isinstance(value, self._base):
            return cast("C", value)
        fields = {self._field: value} if isinstance(value, str) else value
        name = fields.get(self._field) if isinstance(fields, dict) else None
        if not isinstance(name, str) or name not in self:
            raise ValueError(f"expected one of {', '.join(self)}, got {name!r}")
        return self[name].model_validate(fields)

    def __getitem__(self, name: str) -> type[C]:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, type[C]]:
        folder = import_module(self._package).__path__
        for module in pkgutil.walk_packages(folder, f"{self._package}."):
            # This waits for a module that another thread is still importing.
            import_module(module.name)
        return dict(self._classes)
