"""From the arguments of the published code to a configuration of ours."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from foretell.models.architectures import ARCHITECTURES
from foretell.models.forecaster import ForecasterConfig
from foretell.models.importers.arguments import Facts
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.infer import Told
from foretell.models.importers.sources import CodeBase

# Our field for each argument, by architecture; None is for all of them.
_FIELDS = {
    None: {
        "enc_in": "channels",
        "seq_len": "context",
        "pred_len": "horizon",
        "d_model": "d_model",
        "n_heads": "heads",
        "d_ff": "d_ff",
        "e_layers": "encoder_layers",
        "dropout": "dropout",
        "activation": "activation",
    },
    "autoformer": {
        "label_len": "label",
        "d_layers": "decoder_layers",
        "embed": "embedding",
        "factor": "factor",
        "moving_avg": "moving_average",
    },
    "transformer": {
        "label_len": "label",
        "d_layers": "decoder_layers",
        "embed": "embedding",
    },
    "patchtst": {"patch_len": "patch", "stride": "stride"},
}
_OPTIONAL = {"dropout"}
_PATCHTST_FORM = (
    "padding_patch",
    "revin",
    "affine",
    "subtract_last",
    "individual",
    "decomposition",
    "kernel_size",
    "norm",
    "final_norm",
)


def used(architecture: str, facts: Facts) -> Facts:
    """The arguments that a model of this architecture and its data depend on."""
    names = [*_FIELDS[None], *_FIELDS[architecture]]
    if architecture == "patchtst":
        names += _PATCHTST_FORM
    names += ["split", "target"]
    idle = {
        name
        for name, switch in (("kernel_size", "decomposition"), ("subtract_last", "revin"))
        if switch not in facts or not facts[switch].value
    }
    return {name: facts[name] for name in names if name in facts and name not in idle}


def configure(architecture: str, code: CodeBase, told: Told, facts: Facts) -> ForecasterConfig:
    """Build the configuration.

    Args:
        architecture: The architecture.
        code: The code base.
        told: What the checkpoint tells.
        facts: All arguments.

    Raises:
        ImporterError: keys that should tell a size are not in the file, or the arguments do not
            fit together.
    """
    arguments = {**_FIELDS[None], **_FIELDS[architecture]}
    unknown = [name for name in arguments if name not in facts and name not in _OPTIONAL]
    if unknown:
        raise ImporterError(f"no key of the file tells {', '.join(unknown)}; keys are missing")
    fields: dict[str, Any] = {
        field: facts[name].value for name, field in arguments.items() if name in facts
    }
    fields |= _extras(architecture, code, told, facts)
    try:
        return ARCHITECTURES[architecture].model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])} {each['msg']}".strip()
            for each in error.errors()
        )
        raise ImporterError(f"its arguments do not fit together: {problems}") from None


def _extras(architecture: str, code: CodeBase, told: Told, facts: Facts) -> dict[str, Any]:
    """Fields that no argument gives as it stands."""
    if architecture == "autoformer":
        return {"calendar": told.calendar, "lags": code.lags}
    if architecture == "transformer":
        if told.learned_positions:
            raise ImporterError("its positions are not the sinusoids of the published code")
        return {"calendar": told.calendar}
    value = {name: known.value for name, known in facts.items()}
    centre = "last" if value.get("subtract_last") else "mean"
    extras: dict[str, Any] = {
        "pad_end": value["padding_patch"] == "end",
        "instance_norm": centre if value["revin"] else None,
        "positions": "learned" if told.learned_positions else "sinusoidal",
    }
    if told.layout.sources == ("patchtst",):
        extras |= {
            "patch_bias": True,
            "positions": "learned",
            "norm": value["norm"],
            "final_norm": None,
            "residual_attention": True,
            "affine": bool(value["affine"]),
            "individual": bool(value["individual"]),
            "decomposition": value["kernel_size"] if value["decomposition"] else None,
        }
    else:
        extras["final_norm"] = value["final_norm"]
    return extras
