"""What a mechanism of attention is to the layers that are handed one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny
from torch import Tensor, nn

from foretell.bundle.attention import AttentionStage, Axis, Form, stage
from foretell.models.attention.evidence import Evidence
from foretell.models.registry import Registry


class Attended(NamedTuple):
    """What an attention returns.

    Attributes:
        output: `[batch, query, d_model]`.
        evidence: What it looked at; None where nobody asked, or there is nothing to show.
        scores: What it hands on to the next layer, if it does.
    """

    output: Tensor
    evidence: Evidence | None = None
    scores: Tensor | None = None


class Call(NamedTuple):
    """What an attention is called with besides tokens.

    Attributes:
        inherited: Scores that the layer before handed on, if any.
        explain: Whether evidence is returned.
    """

    inherited: Tensor | None = None
    explain: bool = False


class Site(NamedTuple):
    """Where an attention is.

    Attributes:
        d_model: Features of a token.
        heads: Attention heads.
        query: What attends.
        key: What is attended to.
        causal: Whether later positions must not be attended to.
        chained: Whether what an attention hands on reaches the next.
        dropout: Probability of dropping an attention weight in training.
        channels: Where each attends by itself, how many there are.
        width: Features of all heads together; d_model if None.
        cached: Whether tokens come a few at a time, to keys and values of those before them.
    """

    d_model: int
    heads: int
    query: Axis
    key: Axis
    causal: bool = False
    chained: bool = True
    dropout: float = 0.0
    channels: int | None = None
    width: int | None = None
    cached: bool = False

    @property
    def head_width(self) -> int:
        """Features of a head."""
        return (self.width or self.d_model) // self.heads


class MechanismConfig(BaseModel):
    """How tokens attend to others.

    Its module is called with tokens `[batch, query, d_model]` and a source `[batch, key, d_model]`,
    `inherited` (what the layer before handed on, or None) and `explain` (whether evidence is asked
    for), and returns what it `Attended`.

    Attributes:
        mechanism: The name; each mechanism narrows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mechanism: str

    # Of its evidence: a whole map, unless it says otherwise.
    form: ClassVar[Form] = "dense"
    has_causal: ClassVar[bool] = False
    # Whether its module is a `HeadedAttention` that may `attend` a few tokens at a time.
    has_cache: ClassVar[bool] = False
    # Whether the next layer is handed scores.
    hands_on: ClassVar[bool] = False
    # Whether its fields are mechanisms, which have their settings, and no settings themselves.
    made_of_others: ClassVar[bool] = False

    @abstractmethod
    def build(self, site: Site) -> nn.Module:
        """An untrained module."""

    def check(self, site: Site) -> None:
        """Refuse a place where it cannot be.

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
        """What its evidence is in a bundle: a stage, or several whose names begin with this."""
        return (self.stage(name, site),)

    def stage(self, name: str, site: Site, **sizes: Any) -> AttentionStage:  # noqa: ANN401
        """A stage of its form at a place; `sizes` as of `foretell.bundle.attention.stage`."""
        return stage(
            name,
            self.mechanism,
            self.form,
            site.heads,
            site.query,
            site.key,
            channels=site.channels,
            **sizes,
        )


MECHANISMS: Registry[MechanismConfig] = Registry(
    "foretell.models.attention", "mechanism", MechanismConfig
)

Mechanism = Annotated[SerializeAsAny[MechanismConfig], BeforeValidator(MECHANISMS.read)]
