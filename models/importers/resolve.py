"""From what is known to the arguments of a model, with the origin of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretell.models.importers.arguments import ARGUMENTS, Facts, Known
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.infer import Told
from foretell.models.importers.patches import complete_patches
from foretell.models.importers.script import Script
from foretell.models.importers.sources import CodeBase

_ARCHITECTURE_NEEDS = {
    "autoformer": (
        "seq_len",
        "label_len",
        "pred_len",
        "n_heads",
        "factor",
        "moving_avg",
        "activation",
    ),
    "transformer": ("seq_len", "label_len", "pred_len", "n_heads", "activation"),
    "patchtst": (
        "seq_len",
        "n_heads",
        "activation",
        "stride",
        "padding_patch",
        "revin",
        "subtract_last",
    ),
}
# The published code's loaders, by the kind of data set.
_SPLITS = {
    "ETTh1": "ett_hour",
    "ETTh2": "ett_hour",
    "ETTm1": "ett_minute",
    "ETTm2": "ett_minute",
    "custom": "custom",
}
_MARKS = {"s": 6, "t": 5, "h": 4, "d": 3, "b": 3, "w": 2, "m": 1, "a": 1}
_FORECASTS = ("long_term_forecast", "short_term_forecast", "zero_shot_forecast")


def resolve(
    code: CodeBase,
    architecture: str,
    told: Told,
    *,
    flags: Facts,
    script: Script | None,
    setting: Facts,
    defaults: bool,
) -> Facts:
    """Bring together what flags, script, setting, file and code base say.

    Flags go before setting and script. The file has the last word on sizes: who contradicts it is
    wrong.

    Args:
        code: The code base.
        architecture: The architecture.
        told: What the checkpoint tells.
        flags: Arguments given one by one.
        script: Arguments of the script that made the checkpoint, if it is there.
        setting: Arguments of the setting name, or none.
        defaults: Take what nobody says from the code base's defaults.

    Raises:
        ImporterError: two of them contradict each other, or the model is no forecaster of all its
            channels.
    """
    run = _choose_run(script, [flags, told.facts, setting]) if script else {}
    conflicts = _conflicts(setting, run, except_for=flags)
    fixed = {name: Known(value, f"fixed in {code.name}") for name, value in code.constants.items()}
    facts = {**run, **setting, **fixed, **flags}
    if "features" in facts and facts["features"].value == "S":
        facts["enc_in"] = Known(1, f"features S of {facts['features'].origin}")
    conflicts += _conflicts(facts, told.facts)
    if conflicts:
        raise ImporterError("contradictions: " + "; ".join(conflicts))
    facts |= told.facts
    if code.halves_label and "label_len" not in flags:
        _halve_label(facts, code)
    if defaults or (script is not None and script.complete):
        _add_defaults(facts, code, script)
    _check_task(facts, architecture, told)
    _add_split(facts)
    if architecture == "patchtst":
        _complete_patchtst(facts, told, code)
    return facts


def _complete_patchtst(facts: Facts, told: Told, code: CodeBase) -> None:
    complete_patches(facts, told.patches, code)
    if "revin" in facts and not facts["revin"].value:
        facts.setdefault("subtract_last", Known(0, "revin 0"))


def needs(architecture: str, told: Told) -> list[str]:
    """Arguments the model cannot be built without and that its file may not tell."""
    names = list(_ARCHITECTURE_NEEDS[architecture])
    if told.facts.get("decomposition", Known(0, "")).value:
        names.append("kernel_size")
    return names


def ask(names: Iterable[str], facts: Facts, code: CodeBase) -> None:
    """Refuse to go on without the arguments of these names.

    Raises:
        ImporterError: lists every one that is not known, with its meaning and usual value.
    """
    missing = [name for name in dict.fromkeys(names) if name not in facts]
    if not missing:
        return
    width = max(len(name) for name in missing)
    lines = []
    for name in missing:
        usual = code.defaults.get(name)
        hint = "" if usual is None else f" [{_plain(usual)}]"
        lines.append(f"  --{name:<{width}}  {ARGUMENTS[name].meaning}{hint}")
    raise ImporterError(
        f"neither the file nor anything given tells (in brackets: default of {code.name})\n"
        + "\n".join(lines)
        + "\ngive them, the script that trained it as --config or its folder's name as --setting; "
        "--source-defaults takes the defaults"
    )


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _conflicts(first: Facts, second: Facts, except_for: Facts | None = None) -> list[str]:
    return [
        f"{name} is {_plain(known.value)} by {known.origin}, "
        f"{_plain(second[name].value)} by {second[name].origin}"
        for name, known in first.items()
        if name in second and known.value != second[name].value and name not in (except_for or {})
    ]


def _choose_run(script: Script, others: Sequence[Facts]) -> Facts:
    """What the runs that agree with everything else have in common."""
    runs = [run for run in script.runs if not any(_conflicts(run, other) for other in others)]
    if not runs:
        # One run is compared argument by argument; of several none can be meant.
        if len(script.runs) == 1:
            return script.runs[0]
        raise ImporterError(
            f"none of the {len(script.runs)} runs of the script fits the file and what is given"
        )
    return {
        name: known
        for name, known in runs[0].items()
        if all(name in run and run[name].value == known.value for run in runs)
    }


def _add_defaults(facts: Facts, code: CodeBase, script: Script | None) -> None:
    # Runs of a script that differ in an argument did not leave it at its default.
    mentioned = {name for run in script.runs for name in run} if script is not None else set()
    for name, value in code.defaults.items():
        if name not in mentioned:
            facts.setdefault(name, Known(value, f"default of {code.name}"))


def _add_split(facts: Facts) -> None:
    data = facts.get("data")
    split = _SPLITS.get(str(data.value)) if data is not None else None
    if data is not None and split is not None:
        facts.setdefault("split", Known(split, data.origin))


def _halve_label(facts: Facts, code: CodeBase) -> None:
    """Set `label_len` as code does that takes no such argument."""
    univariate = "enc_in" in facts and facts["enc_in"].value == 1
    length = facts.get("pred_len" if univariate else "seq_len")
    if length is not None:
        label = int(length.value) if univariate else int(length.value) // 2
        facts["label_len"] = Known(label, f"fixed in {code.name}")


def _check_task(facts: Facts, architecture: str, told: Told) -> None:
    task, model = facts.get("task_name"), facts.get("model")
    if task is not None and task.value not in _FORECASTS:
        raise ImporterError(f"{task.value} by {task.origin}: only forecasters are read")
    if model is not None and str(model.value).lower() != architecture:
        raise ImporterError(f"{model.origin} is of a {model.value}, --arch is {architecture}")
    channels, forecast = facts.get("enc_in"), facts.get("c_out")
    features = facts.get("features")
    several = channels is None or channels.value != 1
    if (features is not None and features.value == "MS" and several) or (
        channels and forecast and channels.value != forecast.value
    ):
        raise ImporterError(
            "it forecasts one target from several channels (features MS); only models that "
            "forecast all of their channels are read"
        )
    letter = facts.get("freq")
    calendar = told.calendar
    if calendar is not None and calendar.encoding == "scaled" and letter is not None:
        wanted = _MARKS.get(str(letter.value))
        if wanted not in (None, len(calendar.features)):
            raise ImporterError(
                f"contradictions: freq {letter.value} by {letter.origin} has {wanted} calendar "
                f"features, the file has {len(calendar.features)}"
            )
