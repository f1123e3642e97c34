"""Published recipes of training: `foretell/settings/recipes/`, a file a family of models.

A preset is one of a family for a data set and a horizon: `patchtst-42/etth1-96`.
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

# Mean squared and absolute error of the test split, standardised; None where none were published.
Errors = tuple[float, float] | None


class Preset(NamedTuple):
    """A recipe.

    Attributes:
        name: `family/data-horizon`.
        title: What it is.
        source: Where the settings, and the errors, are from.
        settings: Of `foretell train`.
        published: The errors.
    """

    name: str
    title: str
    source: str
    settings: Settings
    published: Errors


class _Data(BaseModel):
    """What is other for a data set, and for horizons of it."""

    model_config = ConfigDict(extra="forbid")

    settings: Settings = {}
    horizons: dict[int, Settings] = {}
    published: dict[int, Errors]

    def over(self, base: _Data) -> _Data:
        """This where it says something, and elsewhere the base."""
        return _Data(
            settings=merge(base.settings, self.settings),
            horizons=base.horizons | self.horizons,
            published=self.published,
        )


class _Family(BaseModel):
    """A file: what all of its presets have in common, and what each data set changes of it."""

    model_config = ConfigDict(extra="forbid")

    title: str
    source: str
    like: str | None = None
    settings: Settings
    data: dict[str, _Data]

    def presets(self, name: str) -> Iterator[Preset]:
        """All of the family of this name."""
        for data, own in self.data.items():
            for horizon, published in own.published.items():
                settings = merge(self.settings, own.settings)
                settings = merge(settings, own.horizons.get(horizon, {}))
                full = f"{name}/{data}-{horizon}"
                yield Preset(
                    full, self.title, self.source, settings | {"horizon": horizon}, published
                )


def presets() -> Mapping[str, Preset]:
    """All there are, by name."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return {preset.name: preset for file in files for preset in _read(file.stem).presets(file.stem)}


def preset(name: str) -> Preset:
    """The one of a name.

    Raises:
        RefusedError: there is none.
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
