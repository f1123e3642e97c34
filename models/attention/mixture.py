"""A mixture by heads: groups of heads, each with a mechanism of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage, Form
from foretell.bundle.part import Part
from foretell.models.attention.evidence import Parts
from foretell.models.attention.mechanism import (
    MECHANISMS,
    Attended,
    Mechanism,
    MechanismConfig,
    Site,
)


class HeadGroup(Part):
    """Some of the heads.

    Attributes:
        heads: Number of heads.
        attention: Mechanism of these heads.
    """

    heads: int = Field(ge=1)
    attention: Mechanism


@MECHANISMS.add
class MixtureConfig(MechanismConfig):
    """Groups of heads, each with a mechanism of its own.

    Attributes:
        groups: Groups of heads in order; together they have the heads of the layer.
    """

    mechanism: Literal["mixture"] = "mixture"
    groups: tuple[HeadGroup, ...] = Field(min_length=2)

    # Each group has its own form; the whole has no map.
    form: ClassVar[Form] = "none"
    has_causal: ClassVar[bool] = True
    made_of_others: ClassVar[bool] = True

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        heads = sum(group.heads for group in self.groups)
        if heads != site.heads:
            raise ValueError(f"attention: the mixture has {heads} heads, the layer {site.heads}")
        for _, mechanism, place in self._placed(site):
            mechanism.check(place)

    @override
    def build(self, site: Site) -> nn.Module:
        return Mixture({name: one.build(place) for name, one, place in self._placed(site)})

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        return tuple(
            stage
            for part, mechanism, place in self._placed(site)
            for stage in mechanism.describe(f"{name}.{part}", place)
        )

    def _placed(self, site: Site) -> Iterator[tuple[str, MechanismConfig, Site]]:
        """Name, mechanism and place of each group."""
        for i, group in enumerate(self.groups):
            width = group.heads * site.head_width
            # Scores that one group passes on would reach all others.
            place = site._replace(heads=group.heads, width=width, chained=False)
            yield str(i), group.attention, place


class Mixture(nn.Module):
    """The sum of the outputs of groups of heads, each of which projects to all features.

    Args:
        groups: Modules of the groups, by name.
    """

    def __init__(self, groups: dict[str, nn.Module]) -> None:
        super().__init__()
        self.groups = nn.ModuleDict(groups)

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        inherited: Tensor | None = None,  # noqa: ARG002 - of mechanisms that add to it
        explain: bool = False,
    ) -> Attended:
        """Let `tokens` `[batch, query, d_model]` read `source` `[batch, key, d_model]`."""
        found = {name: each(tokens, source, explain=explain) for name, each in self.groups.items()}
        output = sum(one.output for one in found.values())
        evidence = Parts({name: one.evidence for name, one in found.items()}) if explain else None
        return Attended(output, evidence)
