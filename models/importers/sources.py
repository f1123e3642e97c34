"""What is known of each code base besides its key layouts."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretell.models.importers.arguments import Value
from foretell.models.importers.layouts import Source
from foretell.models.layers.auto_correlation import Lags

_RUN: dict[str, Value] = {
    "seq_len": 96,
    "label_len": 48,
    "pred_len": 96,
    "n_heads": 8,
    "factor": 1.0,
    "moving_avg": 25,
    "activation": "gelu",
    "features": "M",
    "target": "OT",
}


@dataclass(frozen=True)
class CodeBase:
    """One code base.

    Attributes:
        name: What to call it.
        architectures: Those it has.
        lags: Which lags its auto-correlation sees.
        constants: Arguments that its code does not read but fixes.
        defaults: Values of arguments that a command line leaves out.
        stride: The stride of PatchTST where no argument sets it.
        target_last: Whether it moves the target to the last channel of custom data.
        halves_label: Whether `label_len` is half of `seq_len`, or `pred_len` for one channel.
    """

    name: str
    architectures: tuple[str, ...]
    lags: Lags
    constants: dict[str, Value] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)
    stride: int | None = None
    target_last: bool = True
    halves_label: bool = False


CODE_BASES: dict[Source, CodeBase] = {
    "tslib": CodeBase(
        "the Time-Series-Library",
        ("autoformer", "patchtst", "transformer"),
        lags="even",
        constants={"padding_patch": "end", "revin": 1, "subtract_last": 0},
        defaults=_RUN,
        stride=8,
    ),
    "autoformer": CodeBase(
        "thuml/Autoformer", ("autoformer", "transformer"), lags="all", defaults=_RUN
    ),
    "patchtst": CodeBase(
        "yuqinie98/PatchTST",
        ("patchtst",),
        lags="even",
        constants={"activation": "gelu"},
        defaults=_RUN
        | {
            "stride": 8,
            "padding_patch": "end",
            "revin": 1,
            "affine": 0,
            "subtract_last": 0,
            "decomposition": 0,
            "individual": 0,
            "kernel_size": 25,
        },
    ),
    "tfb": CodeBase(
        "TFB",
        ("autoformer", "patchtst", "transformer"),
        lags="even",
        constants={"padding_patch": "end", "revin": 1, "subtract_last": 0},
        defaults={
            "n_heads": 8,
            "factor": 1.0,
            "moving_avg": 25,
            "activation": "gelu",
            "stride": 8,
        },
        target_last=False,
        halves_label=True,
    ),
}
