"""From all that is said about a model to its arguments, with the provenance of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from foretell.bundle.bounds import shown
from foretell.importers.arguments import COMMON, SPLITS, Argument, Arguments
from foretell.importers.code_base import CodeBase
from foretell.importers.configure import forecasts_last, values_of
from foretell.importers.errors import ImporterError
from foretell.importers.infer import Inferred, Recognised
from foretell.importers.registry import OPTIONS
from foretell.importers.script import Run


class Resolved(NamedTuple):
    """The arguments of a model.

    Attributes:
        arguments: Those that are known.
        unread: What the script says of those that it mentions and nothing tells.
    """

    arguments: Arguments
    unread: Mapping[str, str]


def resolve(
    recognised: Recognised,
    inferred: Inferred,
    *,
    flags: Arguments,
    script: Sequence[Run],
    setting: Arguments,
    defaults: bool,
) -> Resolved:
    """Bring together what flags, script, setting, file and code base say.

    Flags go before setting and script. The file has the last word on sizes: who contradicts it is
    wrong.

    Args:
        recognised: The code base and the architecture.
        inferred: What the checkpoint tells.
        flags: Arguments given one by one.
        script: The runs of the script that made the checkpoint, if it is there.
        setting: Arguments of the setting name, or none.
        defaults: Take what nobody says from the code base's defaults.

    Raises:
        ImporterError: two of them contradict each other, or the model forecasts neither all its
            channels nor the last one.
    """
    code, architecture, _ = recognised
    run = _choose_run(script, [flags, inferred.arguments, setting])
    conflicts = _conflicts(setting, run.arguments, except_for=flags)
    said = {**run.arguments, **setting, **flags}
    fixed = {**code.constants, **code.fix(values_of(said | inferred.arguments))}
    arguments = said | _with(fixed, f"fixed in {code.title}") | flags
    if "features" in arguments and arguments["features"].value == "S":
        provenance = f"features S of {arguments['features'].provenance}"
        arguments["enc_in"] = Argument(1, provenance)
    conflicts += _conflicts(arguments, inferred.arguments)
    if conflicts:
        raise ImporterError("contradictions: " + "; ".join(conflicts))
    arguments |= inferred.arguments
    if defaults or run.complete:
        # What the script mentions, and could not be read, was not left at its default.
        matters = (architecture.fields.keys() | COMMON.keys()) - run.unread.keys()
        left = {name: code.defaults[name] for name in code.defaults.keys() & matters}
        arguments = _with(left, f"default of {code.title}") | arguments
    _check_task(arguments, recognised)
    data = arguments.get("data")
    if data is not None and data.value in SPLITS:
        arguments.setdefault("split", Argument(SPLITS[data.value], data.provenance))
    architecture.derive(arguments, inferred.sizes, code)
    return Resolved(
        arguments, {name: text for name, text in run.unread.items() if name not in arguments}
    )


def require(names: Iterable[str], resolved: Resolved, code: CodeBase) -> None:
    """Refuse to go on without the arguments of these names.

    Raises:
        ImporterError: lists every one that is not known, with its meaning and usual value.
    """
    missing = [name for name in dict.fromkeys(names) if name not in resolved.arguments]
    if not missing:
        return
    width = max(len(name) for name in missing)
    lines = []
    for name in missing:
        hint = f" [{_plain(code.defaults[name])}]" if name in code.defaults else ""
        if name in resolved.unread:
            hint = f" ({resolved.unread[name]})"
        lines.append(f"  --{name:<{width}}  {OPTIONS[name].meaning}{hint}")
    raise ImporterError(
        f"neither the file nor anything given tells (in brackets: default of {code.title})\n"
        + "\n".join(lines)
        + "\ngive them, the script that trained it as --config or its folder's name as --setting; "
        "--source-defaults takes the defaults"
    )


def _plain(value: object) -> str:
    return shown(value) if isinstance(value, float) else str(value)


def _with(values: Mapping[str, object], provenance: str) -> Arguments:
    return {name: Argument(value, provenance) for name, value in values.items()}


def _conflicts(
    first: Arguments, second: Arguments, except_for: Arguments | None = None
) -> list[str]:
    return [
        f"{name} is {_plain(argument.value)} by {argument.provenance}, "
        f"{_plain(second[name].value)} by {second[name].provenance}"
        for name, argument in first.items()
        if name in second
        and argument.value != second[name].value
        and name not in (except_for or {})
    ]


def _choose_run(script: Sequence[Run], others: Sequence[Arguments]) -> Run:
    """What the runs that agree with everything else have in common."""
    runs = [run for run in script if not any(_conflicts(run.arguments, other) for other in others)]
    if len(script) <= 1:
        # One run is compared argument by argument; of several none can be meant.
        return script[0] if script else Run({}, {}, complete=False)
    if not runs:
        raise ImporterError(
            f"none of the {len(script)} runs of the script fits the file and what is given"
        )
    common = {
        name: argument
        for name, argument in runs[0].arguments.items()
        if all(run.arguments.get(name) == argument for run in runs)
    }
    differing = {
        name: f"the runs of {argument.provenance} differ in it"
        for run in runs
        for name, argument in run.arguments.items()
        if name not in common
    }
    unread = {name: text for run in runs for name, text in run.unread.items()}
    return Run(common, differing | unread, all(run.complete for run in runs))


def _check_task(arguments: Arguments, recognised: Recognised) -> None:
    """Refuse what forecasts neither all channels nor the last of them, and tell the two apart."""
    code, architecture, _ = recognised
    model = arguments.get("model")
    if model is not None and model.value.lower() != architecture.name:
        raise ImporterError(
            f"{model.provenance} is of a {model.value}, --arch is {architecture.name}"
        )
    channels, forecast = arguments.get("enc_in"), arguments.get("c_out")
    if channels and forecast and channels.value != forecast.value:
        features = arguments.get("features")
        if forecast.value != 1 or (features and features.value != "MS"):
            raise ImporterError(
                f"it has {channels.value} channels and {forecast.value} of the forecast, features "
                f"{features.value if features else 'unknown'}; models are read that forecast all "
                "of their channels, or the last one (features MS)"
            )
        arguments["features"] = Argument("MS", forecast.provenance)
    if forecasts_last(values_of(arguments)) and not code.target_last:
        raise ImporterError(f"features MS: {code.title} has no models of one target")
