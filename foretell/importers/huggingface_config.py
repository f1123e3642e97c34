"""What files of Hugging Face's models of time series say in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from foretell.importers.arguments import Arguments
from foretell.importers.layouts import Layout

State = dict[str, Tensor]


class SavedConfig(BaseModel):
    """What of `config.json` a forecast depends on, with the library's defaults.

    A model is one file: a class of this kind, which `foretell.importers.huggingface` lists.
    What cannot be served is a ValueError of `check` or `fields` that begins with the field's name.
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
        """Refuse what is no model of ours.

        Raises:
            ValueError: see above.
        """
        usual = {"mean": 1e-5, "magnitude": 1e-10}.get(self.window_norm or "")
        if self.minimum_scale not in (None, usual):
            raise ValueError(f"minimum_scale {self.minimum_scale}: models with {usual} are read")

    @abstractmethod
    def fields(self, given: Arguments) -> dict[str, Any]:
        """Of our configuration.

        Args:
            given: What no file tells, by the names of the options
                (`foretell.importers.registry.FOLDERS`).

        Raises:
            ValueError: something has to be given, or does not fit.
        """

    @abstractmethod
    def layout(self) -> Layout:
        """The keys of the weights, as `prepare` leaves them."""

    @abstractmethod
    def prepare(self, state: State, given: Arguments) -> State:
        """The weights, changed where the library computes with them otherwise.

        Raises:
            ImporterError: one that has to be computed with is not there.
        """
