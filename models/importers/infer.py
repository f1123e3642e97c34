"""What the keys and shapes of a checkpoint tell about its arguments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from foretell.bundle.calendar import Calendar, Feature
from foretell.bundle.frequency import Frequency
from foretell.models.importers.arguments import Facts, Known, Value
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.layouts import LAYOUTS, Layout, Source
from foretell.models.importers.sources import CODE_BASES
from foretell.models.layers.embedding import sinusoids

_TABLE_FEATURES: dict[str, Feature] = {
    "month_embed": "month",
    "day_embed": "day_of_month",
    "weekday_embed": "day_of_week",
    "hour_embed": "hour",
    "minute_embed": "quarter_hour",
}
_LISTED = 5


class Told(NamedTuple):
    """What a checkpoint tells by itself.

    Attributes:
        layout: The form of its keys.
        facts: Arguments, by the published code's names.
        patches: Tokens of a channel, for PatchTST.
        calendar: Calendar features it reads, or None.
        learned_positions: Whether its positions are something else than sinusoids.
    """

    layout: Layout
    facts: Facts
    patches: int | None
    calendar: Calendar | None
    learned_positions: bool


def recognise(state: Mapping[str, Tensor], source: Source, architecture: str) -> Layout:
    """Find the form of the keys.

    Raises:
        ImporterError: the code base has no such architecture, or the keys are those of another.
    """
    code = CODE_BASES[source]
    if architecture not in code.architectures:
        raise ImporterError(
            f"--from {source}: {code.name} is read for --arch {' or '.join(code.architectures)}, "
            f"not {architecture}"
        )
    fitting = {layout: sum(layout.find(key) is not None for key in state) for layout in LAYOUTS}
    asked = [
        layout
        for layout in LAYOUTS
        if source in layout.sources and layout.architecture == architecture
    ]
    best = max(asked, key=lambda layout: fitting[layout])
    other = max(LAYOUTS, key=lambda layout: fitting[layout])
    if not fitting[other]:
        listed = ", ".join(list(state)[:_LISTED])
        raise ImporterError(f"none of its {len(state)} keys is known: {listed}, …")
    if fitting[other] > fitting[best]:
        raise ImporterError(
            f"{fitting[best]} of its {len(state)} keys are those of --from {source} --arch "
            f"{architecture}, but {fitting[other]} are those of {other.title}: use --from "
            f"{' or '.join(other.sources)} --arch {other.architecture}"
        )
    return best


def infer(state: Mapping[str, Tensor], layout: Layout) -> Told:
    """Read off what the keys and shapes tell.

    Each size counts as often as it occurs: one wrong tensor does not change it.
    """
    votes = _count_sizes(state, layout)
    # Input and output nearly always have the same channels: that decides a draw.
    votes["enc_in"].update(votes["c_out"].keys())
    sizes = {name: counter.most_common(1)[0][0] for name, counter in votes.items() if counter}
    sizes |= _count_layers(state, layout)
    sizes.pop("marks", None)
    patches, flattened = sizes.pop("patches", None), sizes.pop("flattened", None)
    d_model = sizes.get("d_model")
    if patches is None and flattened is not None and d_model is not None:
        patches = flattened // d_model
    told: dict[str, Value] = {**sizes, **layout.facts}
    if layout.sources == ("patchtst",):
        told["affine"] = int(any("revin_layer.affine" in key for key in state))
        if told["affine"]:
            told["revin"] = 1
        heads = _heads_of_scale(state, d_model)
        if heads:
            told["n_heads"] = heads
    return Told(
        layout,
        {name: Known(value, "the file") for name, value in told.items()},
        patches,
        _calendar(state, votes["marks"]),
        _has_learned_positions(state),
    )


def _count_sizes(state: Mapping[str, Tensor], layout: Layout) -> defaultdict[str, Counter[int]]:
    """How often each size is of which length."""
    votes: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for key, tensor in state.items():
        match = layout.find(key)
        names = match.row.shape.split() if match is not None else []
        if len(names) == tensor.ndim:
            for name, length in zip(names, tensor.shape, strict=True):
                if not name.isdigit():
                    votes[name][length] += 1
    return votes


def _count_layers(state: Mapping[str, Tensor], layout: Layout) -> dict[str, int]:
    """How many different numbers there are in the place of each placeholder."""
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for match in filter(None, map(layout.find, state)):
        for name, number in match.numbers.items():
            numbers[name].add(number)
    return {name: len(different) for name, different in numbers.items()}


def attention_scales(state: Mapping[str, Tensor]) -> dict[str, float]:
    """The factors that PatchTST's own code stores next to its attentions, by key."""
    return {
        key: float(tensor)
        for key, tensor in state.items()
        if key.endswith(".sdp_attn.scale") and tensor.numel() == 1
    }


def _heads_of_scale(state: Mapping[str, Tensor], d_model: int | None) -> int | None:
    """The number of heads for which every stored factor is the usual `head width ** -0.5`."""
    scales = set(attention_scales(state).values())
    if len(scales) != 1 or d_model is None or min(scales) <= 0:
        return None
    width = round(scales.pop() ** -2, 3)
    return d_model // int(width) if width.is_integer() and d_model % width == 0 else None


def _calendar(state: Mapping[str, Tensor], marks: Counter[int]) -> Calendar | None:
    """The calendar of a linear map from so many features, or that of the tables there are."""
    for count, _ in marks.most_common():
        for unit in ("s", "min", "h", "D", "W", "M"):
            calendar = Calendar.for_frequency(Frequency.parse(unit), "scaled")
            if len(calendar.features) == count:
                return calendar
    if marks:
        raise ImporterError(f"it reads {max(marks)} calendar features; expected 1 to 6")
    features = tuple(
        feature
        for table, feature in _TABLE_FEATURES.items()
        if any(f".temporal_embedding.{table}." in key for key in state)
    )
    return Calendar(encoding="integer", features=features) if features else None


def _has_learned_positions(state: Mapping[str, Tensor]) -> bool:
    tables = [tensor for key, tensor in state.items() if key.endswith("position_embedding.pe")]
    return any(
        table.ndim == 3
        and not torch.allclose(table[0].float(), sinusoids(*table.shape[1:]), atol=1e-3)
        for table in tables
    )
