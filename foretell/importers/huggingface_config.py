"""Common fields of the configurations of Hugging Face's time series models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from foretell.importers.keys import KeyMap

State = dict[str, Tensor]
Length = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]


def known_as(ours: str, default: object) -> Any:  # noqa: ANN401 - a field of any type
    """A field that has another name in our configuration."""
    return Field(default=default, serialization_alias=ours)


class SavedConfig(BaseModel):
    """The fields of `config.json` that a forecast depends on, with the library's defaults.

    Each supported model is a subclass, which `foretell.importers.huggingface` lists. `check` and
    `fields` raise ValueError for unsupported values; its message begins with the field's name.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    title: ClassVar[str]
    model_type: ClassVar[str]
    # Fields that are checked but not shown.
    hidden: ClassVar[frozenset[str]] = frozenset({"scaling_dim", "keepdim", "minimum_scale"})

    scaling: str | bool | None
    # The library has no such fields, but reads them if a file has them.
    scaling_dim: Literal[1] = 1
    keepdim: Literal[True] = True
    minimum_scale: float | None = None

    @property
    def window_norm(self) -> Literal["mean", "magnitude"] | None:
        """The window norm for `scaling`; None for words that the library does not know."""
        if self.scaling == "mean" or self.scaling is True:
            return "magnitude"
        return "mean" if self.scaling == "std" else None

    def check(self) -> None:
        """Refuse values that our models do not support."""
        usual = {"mean": 1e-5, "magnitude": 1e-10}.get(self.window_norm or "")
        if self.minimum_scale not in (None, usual):
            raise ValueError(f"minimum_scale {self.minimum_scale}: models with {usual} are read")

    @abstractmethod
    def fields(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Our configuration; `given` has the options that the file lacks."""

    def _same(self) -> dict[str, Any]:
        """Fields with the same meaning here, by our names."""
        named = {name: each.serialization_alias for name, each in type(self).model_fields.items()}
        return {ours: getattr(self, name) for name, ours in named.items() if ours is not None}

    @abstractmethod
    def key_map(self) -> KeyMap:
        """The keys of the weights, as `prepare` leaves them."""

    @abstractmethod
    def prepare(self, state: State, given: Mapping[str, str]) -> State:
        """The weights, converted where the library uses them differently."""
