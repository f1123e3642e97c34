"""The interface between mechanisms of attention and layers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny
from torch import Tensor, nn

from foretell.bundle.attention import AttentionStage, Axis, Form, stage
from foretell.models.attention.evidence import Evidence
from foretell.models.registry import Registry


class Attended(NamedTuple):
    """Results of an attention.

    Attributes:
        output: `[batch, query, d_model]`.
        evidence: Evidence of the attention; None if it was not requested or does not exist.
        scores: Scores that it passes on to the next layer, if any.
    """

    output: Tensor
    evidence: Evidence | None = None
    scores: Tensor | None = None


class Call(NamedTuple):
    """Arguments of an attention besides tokens.

    Attributes:
        inherited: Scores that the layer before passed on, if any.
        explain: Whether evidence is returned.
    """

    inherited: Tensor | None = None
    explain: bool = False


class Site(NamedTuple):
    """The place of an attention.

    Attributes:
        d_model: Features of a token.
        heads: Attention heads.
        query: Axis that attends.
        key: Axis that is attended to.
        causal: Whether queries must not attend to later positions.
        chained: Whether scores that an attention passes on reach the next.
        dropout: Probability of dropping an attention weight in training.
        channels: Number of channels, if each attends by itself.
        places: Places of these channels among all of the model's; None for all.
        width: Features of all heads together; d_model if None.
        cached: Whether tokens come a few at a time, with keys and values of earlier ones cached.
    """

    d_model: int
    heads: int
    query: Axis
    key: Axis
    causal: bool = False
    chained: bool = True
    dropout: float = 0.0
    channels: int | None = None
    places: tuple[int, ...] | None = None
    width: int | None = None
    cached: bool = False

    @property
    def head_width(self) -> int:
        """Features of a head."""
        return (self.width or self.d_model) // self.heads


class MechanismConfig(BaseModel):
    """Settings of a mechanism of attention.

    Its module is called with tokens `[batch, query, d_model]` and a source `[batch, key, d_model]`,
    `inherited` (scores that the layer before passed on, or None) and `explain` (whether to return
    evidence), and returns an `Attended`.

    Attributes:
        mechanism: Name; each mechanism narrows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mechanism: str

    # Form of its evidence: a whole map by default.
    form: ClassVar[Form] = "dense"
    has_causal: ClassVar[bool] = False
    # Whether its module is a `HeadedAttention` that may `attend` a few tokens at a time.
    has_cache: ClassVar[bool] = False
    # Whether it passes scores on to the next layer.
    hands_on: ClassVar[bool] = False
    # Whether its fields are other mechanisms, which have settings of their own.
    made_of_others: ClassVar[bool] = False

    @abstractmethod
    def build(self, site: Site) -> nn.Module:
        """An untrained module."""

    def check(self, site: Site) -> None:
        """Refuse a place that does not suit the mechanism.

        Raises:
            ValueError: the message names the setting.
        """
        if self.hands_on and not site.chained:
            raise ValueError(f"attention: {self.mechanism} is for whole layers of an encoder")
        if site.causal and not self.has_causal:
            raise ValueError(f"attention: {self.mechanism} has no causal form, which is needed")
        if site.cached and not self.has_cache:
            raise ValueError(f"attention: {self.mechanism} has no cache, which decoding needs")
        if (site.width or site.d_model) % site.heads:
            raise ValueError(f"heads: {site.heads} heads do not divide d_model {site.d_model}")

    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        """Stages of its evidence in a bundle, whose names begin with this name."""
        return (self.stage(name, site),)

    def stage(self, name: str, site: Site, **sizes: Any) -> AttentionStage:  # noqa: ANN401
        """A stage of its form at a place; `sizes` as in `foretell.bundle.attention.stage`."""
        return stage(
            name,
            self.mechanism,
            self.form,
            site.heads,
            site.query,
            site.key,
            channels=site.channels,
            places=site.places,
            **sizes,
        )


MECHANISMS: Registry[MechanismConfig] = Registry(
    "foretell.models.attention", "mechanism", MechanismConfig
)

Mechanism = Annotated[SerializeAsAny[MechanismConfig], BeforeValidator(MECHANISMS.read)]
