"""From a published checkpoint file to a model and all that is known about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import Scaler
from foretell.data.panel import Panel, check_bounds
from foretell.data.scaler import fit
from foretell.data.source import DataSource
from foretell.data.splits import overlap
from foretell.importers.arguments import Argument, Arguments
from foretell.importers.code_base import CodeBase
from foretell.importers.configure import configure, relevant, required, values_of
from foretell.importers.data import arrange, needs_target, read_panel, split_rows
from foretell.importers.errors import ImporterError
from foretell.importers.given import read_arguments, read_setting
from foretell.importers.infer import infer, recognise
from foretell.importers.layouts import Layout
from foretell.importers.reading import read_state
from foretell.importers.registry import CODE_BASES
from foretell.importers.resolve import Resolved, require, resolve
from foretell.importers.script import Run, read_script
from foretell.importers.weights import check_floats, load_weights
from foretell.importers.wrapping import unwrap
from foretell.models.checkpoint import CheckpointInfo
from foretell.models.forecaster import Forecaster
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import measure_within
from foretell.training.windows import Windows


@dataclass(frozen=True)
class Request:
    """What to adopt, and what is known about it.

    Attributes:
        file: The checkpoint; of a library that saves models in folders, the folder.
        source: The code base or library it comes from, where its keys do not tell.
        architecture: The architecture, where neither setting nor script names it.
        member: Which of the models of a folder.
        data: The CSV it was trained on, or None.
        setting: The name of its folder; by default that of the folder it lies in.
        script: A script, YAML or JSON file of its arguments, or the arguments themselves.
        arguments: Its arguments one by one, by the published code's names.
        scaler: Its standardisation, where not that of the data's training rows.
        unscaled: Whether it was trained on values as they are.
        channels: Columns of the data in the model's order, where not all as they come.
        frequency: Spacing of the steps, where there is no data to tell it.
        bounds: Limits of channels, by name.
        defaults: Take what nothing tells from the defaults of the code base.
    """

    file: Path
    source: str | None = None
    architecture: str | None = None
    member: str | None = None
    data: Path | None = None
    setting: str | None = None
    script: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    scaler: Scaler | None = None
    unscaled: bool = False
    channels: tuple[str, ...] | None = None
    frequency: str | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    defaults: bool = False


class Imported(NamedTuple):
    """An adopted model in eval mode.

    Attributes:
        info: All that is known about it.
        model: The model.
        arguments: Those it depends on, each with its provenance.
    """

    info: CheckpointInfo
    model: Forecaster
    arguments: Arguments


def import_checkpoint(request: Request) -> Imported:
    """Adopt a checkpoint; with data, measure it on all windows of its test split.

    Raises:
        DataError: the data cannot be read, is too short, or lies beyond the bounds.
        ImporterError: the file cannot be adopted; the message says why, or asks for what is
            missing.
    """
    state = unwrap(read_state(request.file), _layouts(request.source))
    setting = _setting(request)
    script = read_script(request.script) if request.script else []
    recognised = recognise(
        state,
        request.source,
        request.architecture or _named_model(setting, script),
        {*setting, *(name for run in script for name in run.arguments)},
    )
    code, architecture, layout = recognised
    inferred = infer(state, architecture, layout)
    resolved = resolve(
        recognised,
        inferred,
        flags=read_arguments(request.arguments),
        script=script,
        setting=setting,
        defaults=request.defaults,
    )
    arguments = resolved.arguments
    check_floats(layout, state)
    needed = [*required(architecture, layout, arguments), *({"features"} & resolved.unread.keys())]
    panel = _read_data(request, code, needed, resolved)
    model = configure(architecture, arguments).build()
    load_weights(model, layout, architecture.prepare(state, values_of(arguments)))
    model.eval()
    info = describe(request, model, panel, arguments)
    return Imported(info, model, relevant(architecture, arguments))


def _layouts(source: str | None) -> Iterator[Layout]:
    """The forms that keys may have."""
    for code in CODE_BASES.values():
        if source in (None, code.name):
            for architecture in code.architectures:
                yield from architecture.layouts


def _setting(request: Request) -> Arguments:
    if request.setting is None:
        return read_setting(request.file.resolve().parent.name, "its folder's name") or {}
    setting = read_setting(Path(request.setting).name, "setting")
    if setting is None:
        raise ImporterError(
            f"setting {request.setting!r}: expected a folder name such as "
            "…_ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128_fc1_ebtimeF_…"
        )
    return setting


def _named_model(setting: Arguments, script: Sequence[Run]) -> str | None:
    """The architecture that the setting or all runs of the script name."""
    said = [setting, *(run.arguments for run in script)]
    names = {each["model"].value.lower() for each in said if "model" in each}
    return names.pop() if len(names) == 1 else None


def _read_data(
    request: Request, code: CodeBase, needed: list[str], resolved: Resolved
) -> Panel | None:
    """Read the data, if there is any, and ask for all that is still unknown."""
    frequency = parse_frequency(request)
    arguments, channels = resolved.arguments, request.channels
    if request.data is not None:
        chosen = channels is not None
        panel = read_panel(request.data, arguments, channels, frequency)
        needed = [*needed, "split"]
        if needs_target(panel, arguments, code, chosen=chosen):
            needed.append("target")
        else:
            arguments.pop("target", None)
        require(needed, resolved, code)
        panel = arrange(panel, arguments, code, chosen=chosen)
        arguments.setdefault("enc_in", Argument(len(panel.channels), request.data.name))
        return panel
    require(needed, resolved, code)
    check_described(request)
    named = request.channels or ()
    check_names(named, arguments.setdefault("enc_in", Argument(len(named), "--channels")).value)
    return None


def parse_frequency(request: Request) -> Frequency | None:
    """The spacing of the steps, if it is given.

    Raises:
        ImporterError: it is none.
    """
    if request.frequency is None:
        return None
    try:
        return Frequency.parse(request.frequency)
    except FrequencyError as error:
        raise ImporterError(f"--frequency: {error}") from None


def check_described(request: Request) -> None:
    """Ask for what no file tells where there are no data.

    Raises:
        ImporterError: something of it is not given.
    """
    scaled = request.unscaled or request.scaler is not None
    if request.channels is None or request.frequency is None or not scaled:
        raise ImporterError(
            "without --data, its channels' names, spacing and scale have to come from "
            "--channels, --frequency, --mean and --std (or --unscaled)"
        )


def check_names(channels: Sequence[str], count: int) -> None:
    """Refuse names that are not those of so many channels.

    Raises:
        ImporterError: they are more or fewer, or one occurs twice.
    """
    if count != len(channels):
        raise ImporterError(f"--channels: expected {count} names, got {len(channels)}")
    if len(set(channels)) != len(channels):
        raise ImporterError("--channels: a name occurs twice")


def describe(
    request: Request, model: Forecaster, panel: Panel | None, arguments: Arguments
) -> CheckpointInfo:
    """All there is to know about the model; with data, its accuracy too.

    Args:
        request: What was asked for.
        model: In eval mode.
        panel: Its data, if there are any; their channels are the model's.
        arguments: With `split`, if there are data.

    Raises:
        DataError: the data are too short, or lie beyond the bounds.
        ImporterError: what is given does not fit the model.
    """
    config, scaler, source, test = model.config, request.scaler, None, None
    if request.unscaled:
        if scaler is not None:
            raise ImporterError("--unscaled: there are --mean and --std")
        scaler = Scaler.identity(config.channels)
    if scaler is not None and len(scaler.mean) != config.channels:
        raise ImporterError(
            f"--mean and --std have {len(scaler.mean)} numbers, the model has "
            f"{config.channels} channels"
        )
    names = (request.channels or ()) if panel is None else panel.channels
    targets = names if config.targets is None else [names[place] for place in config.targets]
    _check_target(request, targets)
    check_bounds(request.bounds, targets, panel)
    if panel is not None:
        splits = split_rows(str(arguments["split"].value))
        split = splits.cut(panel, config.context, config.horizon)
        source = DataSource.of(panel, splits)
        if scaler is None:
            scaler = fit(panel, split.train)
        elif scaler.is_identity:
            scaler = scaler.beside(fit(panel, split.train))
        windows = Windows.of(config, panel, split.test, scaler)
        test = measure_within(model, request.bounds, targets, scaler, windows, panel.frequency)
        overlaps = overlap(panel, split, config.context) is not None
        test = test.model_copy(update={"overlaps": overlaps})
    return CheckpointInfo.model_validate(
        {
            "config": config,
            "channels": names,
            "frequency": request.frequency if panel is None else str(panel.frequency),
            "scaler": scaler,
            "bounds": request.bounds,
            "data": source,
            "test": test,
        }
    )


def _check_target(request: Request, targets: Sequence[str]) -> None:
    """Refuse a target by its name that is not what a model of one target forecasts."""
    name = request.arguments.get("target", targets[0])
    if len(targets) == 1 and name != targets[0]:
        raise ImporterError(
            f"--target {name}: the model forecasts its last channel, which is {targets[0]}; "
            "--channels puts another one there"
        )
