"""Published recipes of trainings, with one file per family in `foretell/settings/recipes/`.

A preset is the recipe of a family for a data set and a horizon: `patchtst-42/etth1-96`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from foretell.errors import RefusedError
from foretell.settings.given import Settings, merge
from foretell.settings.yaml_file import load

_FOLDER = Path(__file__).parent / "recipes"

# Published mean squared and absolute error on the test split, standardised; None if unpublished.
Errors = tuple[float, float] | None


class Preset(NamedTuple):
    """A recipe.

    Attributes:
        name: Name, `family/data-horizon`.
        title: Title of the family.
        source: Source of the settings and the errors.
        settings: Settings of `foretell train`.
        published: Published errors.
    """

    name: str
    title: str
    source: str
    settings: Settings
    published: Errors


class _Data(BaseModel):
    """Settings of a data set, and of its horizons, that differ from the family's."""

    model_config = ConfigDict(extra="forbid")

    settings: Settings = {}
    horizons: dict[int, Settings] = {}
    published: dict[int, Errors]

    def over(self, base: _Data) -> _Data:
        """The base, overridden by this."""
        return _Data(
            settings=merge(base.settings, self.settings),
            horizons=base.horizons | self.horizons,
            published=self.published,
        )


class _Family(BaseModel):
    """A file: settings of all its presets, and changes for each data set."""

    model_config = ConfigDict(extra="forbid")

    title: str
    source: str
    like: str | None = None
    settings: Settings
    data: dict[str, _Data]

    def presets(self, name: str) -> Iterator[Preset]:
        """All presets of the family; `name` is its name."""
        for data, own in self.data.items():
            for horizon, published in own.published.items():
                settings = merge(self.settings, own.settings)
                settings = merge(settings, own.horizons.get(horizon, {}))
                full = f"{name}/{data}-{horizon}"
                yield Preset(
                    full, self.title, self.source, settings | {"horizon": horizon}, published
                )


def presets() -> Mapping[str, Preset]:
    """All presets by name."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return {preset.name: preset for file in files for preset in _read(file.stem).presets(file.stem)}


def preset(name: str) -> Preset:
    """The preset with a name.

    Raises:
        RefusedError: there is no such preset.
    """
    found = presets()
    if name not in found:
        raise RefusedError(f"no preset {name!r}; `foretell presets` lists them")
    return found[name]


def _read(family: str) -> _Family:
    read = _Family.model_validate(load((_FOLDER / f"{family}.yaml").read_bytes(), family))
    if read.like is None:
        return read
    base = _read(read.like)
    data = {name: own.over(base.data[name]) for name, own in read.data.items()}
    return read.model_copy(update={"settings": merge(base.settings, read.settings), "data": data})
