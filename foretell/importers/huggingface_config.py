"""What files of Hugging Face's models of time series have in common."""

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


def known_as(ours: str, default: object) -> Any:  # noqa: ANN401 - whatever the field is
    """A field that has a name of its own here."""
    return Field(default=default, serialization_alias=ours)


class SavedConfig(BaseModel):
    """What of `config.json` a forecast depends on, with the library's defaults.

    A model is a class of this kind, which `foretell.importers.huggingface` lists. What
    cannot be served is a ValueError of `check` or `fields` that begins with the field's name.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    title: ClassVar[str]
    model_type: ClassVar[str]
    # Fields that are checked alone.
    hidden: ClassVar[frozenset[str]] = frozenset({"scaling_dim", "keepdim", "minimum_scale"})

    scaling: str | bool | None
    # No fields of the library's, but read where a file has them.
    scaling_dim: Literal[1] = 1
    keepdim: Literal[True] = True
    minimum_scale: float | None = None

    @property
    def window_norm(self) -> Literal["mean", "magnitude"] | None:
        """What stands for `scaling`: a word that the library does not know means none there."""
        if self.scaling == "mean" or self.scaling is True:
            return "magnitude"
        return "mean" if self.scaling == "std" else None

    def check(self) -> None:
        """Refuse what is no model of ours."""
        usual = {"mean": 1e-5, "magnitude": 1e-10}.get(self.window_norm or "")
        if self.minimum_scale not in (None, usual):
            raise ValueError(f"minimum_scale {self.minimum_scale}: models with {usual} are read")

    @abstractmethod
    def fields(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Our configuration, with what no file has given by the names of its options."""

    def _same(self) -> dict[str, Any]:
        """Fields that mean the same here, by our names, which are their aliases."""
        named = {name: each.serialization_alias for name, each in type(self).model_fields.items()}
        return {ours: getattr(self, name) for name, ours in named.items() if ours is not None}

    @abstractmethod
    def key_map(self) -> KeyMap:
        """The keys of the weights, as `prepare` leaves them."""

    @abstractmethod
    def prepare(self, state: State, given: Mapping[str, str]) -> State:
        """The weights, changed where the library computes with them otherwise."""
