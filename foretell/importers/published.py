"""Files of published code that hold a plain state_dict.

Arguments that keys and shapes do not determine come from options, from the name of the file's
folder and from the training command. Missing arguments and contradictions are errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretell.bundle.bounds import shown
from foretell.data.panel import Panel
from foretell.importers import patchtst, tslib
from foretell.importers.arguments import (
    OPTIONS,
    Argument,
    Arguments,
    Values,
    read_arguments,
    read_setting,
    values_of,
    with_provenance,
)
from foretell.importers.code_base import Architecture, CodeBase, State
from foretell.importers.data import arranged, check_described, is_moved, read_panel
from foretell.importers.errors import ImporterError, explained
from foretell.importers.keys import load_weights, unwrap
from foretell.importers.reading import read_state
from foretell.importers.saved import Request, SavedModel
from foretell.importers.script import Run, read_script
from foretell.models.config import ARCHITECTURES, ForecasterConfig

CODE_BASES = tslib.CODE_BASES | patchtst.CODE_BASES
_LISTED = 5
# Arguments that need not be given: training reads the first, and the data determines the second.
_NOT_REQUIRED = {"dropout", "enc_in"}
# Arguments that matter only if another one is set.
_ONLY_WITH = {"subtract_last": "revin", "kernel_size": "decomposition"}
_ONLY_WITH |= {"embed": "marks", "freq": "marks"}
# Arguments about the data, which also have defaults.
_OF_DATA = {"features", "target"}
# The splits of the loader of each kind of data set.
_SPLITS = {"custom": "custom"} | dict.fromkeys(("ETTh1", "ETTh2"), "ett_hour")
_SPLITS |= dict.fromkeys(("ETTm1", "ETTm2"), "ett_minute")


def read(request: Request) -> SavedModel:
    """Read a file, and its training data in the order of the model's channels.

    Raises:
        DataError: the data cannot be read.
        ImporterError: the file cannot be imported; the message has the reason or the missing
            arguments.
    """
    setting = _read_setting(request)
    runs = read_script(request.script) if request.script else []
    state, code, name = _recognise(request, [setting, *(run.arguments for run in runs)])
    architecture = code.architectures[name]
    runs = [run for run in runs if _is_of(run.arguments, name)] or runs
    known = _resolve(code, architecture, state, request, setting, runs)
    _check_task(known.arguments, name, code)
    panel = _read_data(request, known, architecture, code)
    values = values_of(known.arguments)
    model = _configure(name, architecture, values).build()
    load_weights(model, architecture.keys(state), architecture.prepare(state, values))
    names = _relevant(architecture, values) + ["features"] * _forecasts_last(values)
    arguments = {
        each: known.arguments[each]
        for each in [*names, "split", "target"]
        if each in known.arguments
    }
    return SavedModel(model.eval(), arguments, panel=panel)


def _read_setting(request: Request) -> Arguments:
    if request.setting is None:
        return read_setting(request.file.resolve().parent.name, "its folder's name") or {}
    setting = read_setting(request.setting.rstrip("/").rpartition("/")[2], "setting")
    if setting is None:
        raise ImporterError(
            f"setting {request.setting!r}: expected a folder name such as "
            "…_ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128_fc1_ebtimeF_…"
        )
    return setting


def _recognise(request: Request, described: Sequence[Arguments]) -> tuple[State, CodeBase, str]:
    """The state_dict without prefixes of wrappers, the code base and the architecture."""
    state, source = read_state(request.file), request.source
    models = {each["model"].value.lower() for each in described if "model" in each}
    name = request.architecture or (models.pop() if len(models) == 1 else None)
    known = {
        (own, each): architecture.keys(state)
        for own, code in CODE_BASES.items()
        for each, architecture in code.architectures.items()
    }
    usable = [each for each in known if source in (None, each[0])]
    matching = [each for each in usable if name in (None, each[1])]
    if not matching:
        wanted = " ".join(filter(None, (source, name)))
        raise ImporterError(f"{wanted} is not read; use {_options(usable)}")
    state = unwrap(state, [known[each] for each in usable])
    counts = {each: sum(map(keys.knows, state)) for each, keys in known.items()}
    most, best = max(counts.values()), max(counts[each] for each in matching)
    if not most:
        listed = ", ".join(list(state)[:_LISTED])
        raise ImporterError(f"none of its {len(state)} keys is known: {listed}, …")
    if best < most:
        fitting = [each for each in known if counts[each] == most]
        raise ImporterError(
            f"{best} of its {len(state)} keys are those of {_options(matching)}, but {most} are "
            f"those of {known[fitting[0]].title}: use {_options(fitting)}"
        )
    left = [each for each in matching if counts[each] == best]
    # Only this code base has tasks.
    if any("task_name" in each for each in described):
        left = [each for each in left if each[0] == "tslib"] or left
    # Unsupported variants may have the same keys, so the keys alone are not enough.
    if name is None or len(left) > 1:
        raise ImporterError(f"its keys alone do not identify it: use {_options(left)}")
    return state, CODE_BASES[left[0][0]], name


def _options(fitting: Sequence[tuple[str, str]]) -> str:
    sources, names = (dict.fromkeys(each) for each in zip(*fitting, strict=True))
    return f"--from {' or '.join(sources)} --arch {' or '.join(names)}"


def _resolve(
    code: CodeBase,
    architecture: Architecture,
    state: State,
    request: Request,
    setting: Arguments,
    runs: Sequence[Run],
) -> Run:
    """Combine the arguments of options, setting, commands, file and code base.

    Options override setting and command. A contradiction to the file is an error.
    """
    flags = read_arguments(request.arguments)
    stored = with_provenance(architecture.stored(state, {}), "the file")
    run = _choose(runs, [flags, stored, setting])
    given = {**run.arguments, **setting, **flags}
    fixed = code.fixed(values_of(given | stored))
    arguments = given | with_provenance(fixed, f"fixed in {code.title}") | flags
    if "features" in arguments and arguments["features"].value == "S":
        provenance = f"features S of {arguments['features'].provenance}"
        arguments["enc_in"] = Argument(1, provenance)
    stored = with_provenance(architecture.stored(state, values_of(arguments)), "the file")
    agreed = {name: each for name, each in setting.items() if name not in flags}
    if conflicts := _conflicts(agreed, run.arguments) + _conflicts(arguments, stored):
        raise ImporterError("contradictions: " + "; ".join(conflicts))
    arguments |= stored
    if request.defaults or run.complete:
        # An option that the command sets, but that could not be read, is not at its default.
        left = (architecture.fields.keys() | _OF_DATA) & code.defaults.keys() - run.unread.keys()
        defaults = {name: code.defaults[name] for name in left}
        arguments = with_provenance(defaults, f"default of {code.title}") | arguments
    data = arguments.get("data")
    if data is not None and data.value in _SPLITS:
        arguments.setdefault("split", Argument(_SPLITS[data.value], data.provenance))
    return run._replace(arguments=arguments)


def _choose(runs: Sequence[Run], others: Sequence[Arguments]) -> Run:
    """The command that agrees with everything else."""
    if len(runs) <= 1:
        # `_resolve` compares a single command argument by argument.
        return runs[0] if runs else Run({}, {}, complete=False)
    fitting = [run for run in runs if not any(_conflicts(run.arguments, other) for other in others)]
    different = [run for i, run in enumerate(fitting) if run not in fitting[:i]]
    if len(different) == 1:
        return different[0]
    given = [{**values_of(run.arguments), **run.unread} for run in different]
    names = dict.fromkeys(name for each in given for name in each)
    differing = [
        name for name in names if any(each.get(name) != given[0].get(name) for each in given)
    ]
    difference = f", and differ in {', '.join(differing)}" if differing else ""
    raise ImporterError(
        f"{len(fitting) or 'none'} of the {len(runs)} commands of the script fit the file and what "
        f"is given{difference}: give the one that trained it, as --config 'python run.py …'"
    )


def _is_of(arguments: Arguments, name: str) -> bool:
    return "model" not in arguments or arguments["model"].value.lower() == name


def _conflicts(first: Arguments, second: Arguments) -> list[str]:
    return [
        f"{name} is {_plain(argument.value)} by {argument.provenance}, "
        f"{_plain(second[name].value)} by {second[name].provenance}"
        for name, argument in first.items()
        if name in second and argument.value != second[name].value
    ]


def _plain(value: object) -> str:
    return shown(value) if isinstance(value, float) else str(value)


def _check_task(arguments: Arguments, name: str, code: CodeBase) -> None:
    """Refuse models that forecast neither all channels nor the last; set `features` MS for one."""
    if not _is_of(arguments, name):
        model = arguments["model"]
        raise ImporterError(f"{model.provenance} names a {model.value}, --arch is {name}")
    channels, forecast = arguments.get("enc_in"), arguments.get("c_out")
    if channels and forecast and channels.value != forecast.value:
        features = arguments.get("features")
        if forecast.value != 1 or (features and features.value != "MS"):
            raise ImporterError(
                f"it has {channels.value} channels and forecasts {forecast.value}, features "
                f"{features.value if features else 'unknown'}; expected a model that forecasts all "
                "of its channels, or the last one (features MS)"
            )
        arguments["features"] = Argument("MS", forecast.provenance)
    if _forecasts_last(values_of(arguments)) and not code.target_last:
        raise ImporterError(f"features MS: {code.title} has no models of one target")


def _forecasts_last(values: Values) -> bool:
    """Whether the model reads several channels and forecasts the last one."""
    return values.get("features") == "MS" and values.get("enc_in") != 1


def _relevant(architecture: Architecture, values: Values) -> list[str]:
    """Names of the arguments that the model depends on, known or not."""
    return [name for name in architecture.fields if values.get(_ONLY_WITH.get(name, ""), True)]


def _read_data(
    request: Request, known: Run, architecture: Architecture, code: CodeBase
) -> Panel | None:
    """Read the data, if any, in the order of the channels; raise if arguments are missing."""
    arguments = known.arguments
    needed = _relevant(architecture, values_of(arguments))
    needed += ["features"] * ("features" in known.unread)
    panel, names = read_panel(request, arguments), request.channels or ()
    if panel is None:
        _require(needed, known, code)
        check_described(request)
    else:
        moved = is_moved(panel, arguments, request, target_last=code.target_last)
        _require([*needed, "split", *["target"] * moved], known, code)
        names = arranged(panel, arguments) if moved else panel.channels
        panel = panel.select(names)
        if not moved:
            arguments.pop("target", None)
    place = request.data.name if request.data else "--channels"
    arguments.setdefault("enc_in", Argument(len(names), place))
    return panel


def _require(names: Sequence[str], known: Run, code: CodeBase) -> None:
    """Raise if arguments are missing; the message has their meanings and defaults."""
    required = [name for name in names if name in OPTIONS and name not in _NOT_REQUIRED]
    missing = [name for name in required if name not in known.arguments]
    if not missing:
        return
    width = max(map(len, missing))
    lines = []
    for name in missing:
        hint = f" [{_plain(code.defaults[name])}]" if name in code.defaults else ""
        if name in known.unread:
            hint = f" ({known.unread[name]})"
        lines.append(f"  {name:<{width}}  {OPTIONS[name].meaning}{hint}")
    raise ImporterError(
        f"not in the file, and not given (in brackets: default of {code.title})\n"
        + "\n".join(lines)
        + "\ngive them as --set NAME=VALUE, the command that trained it as --config or its "
        "folder's name as --setting; --assume-defaults takes the defaults"
    )


def _configure(name: str, architecture: Architecture, values: Values) -> ForecasterConfig:
    fields = {
        field: values[each]
        for each, field in architecture.fields.items()
        if field is not None and each in values
    }
    if _forecasts_last(values):
        fields["targets"] = (values["enc_in"] - 1,)
    try:
        return ARCHITECTURES[name].model_validate(fields | architecture.configure(values))
    except ValueError as error:
        raise ImporterError(explained(error)) from None
