"""From a published checkpoint file to a model and all that is known about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from foretell.bundle.checksums import sha256
from foretell.bundle.errors import FrequencyError
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Scaler
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import CheckpointInfo
from foretell.models.data.scaler import fit
from foretell.models.data.source import DataSource
from foretell.models.data.table import Table
from foretell.models.data.windows import Windows
from foretell.models.evaluation import against_baselines
from foretell.models.forecaster import Forecaster, ForecasterConfig
from foretell.models.importers.arguments import Argument, Arguments
from foretell.models.importers.code_base import CodeBase
from foretell.models.importers.configure import configure, relevant, required, values_of
from foretell.models.importers.data import arrange, needs_target, read_table, split_rows
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.given import read_arguments, read_setting
from foretell.models.importers.infer import infer, recognise
from foretell.models.importers.reading import read_state
from foretell.models.importers.resolve import Resolved, require, resolve
from foretell.models.importers.script import Run, read_script
from foretell.models.importers.weights import load_weights


@dataclass(frozen=True)
class Request:
    """What to adopt, and what is known about it.

    Attributes:
        file: The checkpoint.
        source: The code base it comes from, where its keys do not tell.
        architecture: The architecture, where neither setting nor script names it.
        data: The CSV it was trained on, or None.
        setting: The name of its folder; by default that of the folder it lies in.
        script: A script, YAML or JSON file of its arguments, or the arguments themselves.
        arguments: Its arguments one by one, by the published code's names.
        scaler: Its standardisation, where not that of the data's training rows.
        channels: Columns of the data in the model's order, where not all as they come.
        frequency: Spacing of the steps, where there is no data to tell it.
        defaults: Take what nothing tells from the defaults of the code base.
    """

    file: Path
    source: str | None = None
    architecture: str | None = None
    data: Path | None = None
    setting: str | None = None
    script: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    scaler: Scaler | None = None
    channels: tuple[str, ...] | None = None
    frequency: str | None = None
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


class _Series(NamedTuple):
    """What the model's channels are called and how far apart its steps are, with the data."""

    channels: tuple[str, ...]
    frequency: Frequency
    table: Table | None


def import_checkpoint(request: Request) -> Imported:
    """Adopt a checkpoint; with data, measure it on all windows of its test split.

    Raises:
        DataError: the data cannot be read or is too short.
        ImporterError: the file cannot be adopted; the message says why, or asks for what is
            missing.
    """
    state = read_state(request.file)
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
    needed = required(architecture, layout, arguments)
    needed += [name for name in ("features",) if name in resolved.unread]
    series = _read_series(request, code, needed, resolved)
    config = configure(architecture, arguments)
    model = config.build()
    load_weights(model, layout, architecture.prepare(state, values_of(arguments)))
    model.eval()
    if request.scaler is not None and len(request.scaler.mean) != config.channels:
        raise ImporterError(
            f"--mean and --std have {len(request.scaler.mean)} numbers, the model has "
            f"{config.channels} channels"
        )
    info = _describe(config, series, request.scaler, arguments)
    if series.table is not None and info.data is not None:
        windows = Windows(
            series.table,
            info.data.splits.test,
            config.context,
            config.horizon,
            info.scaler,
            config.calendar,
        )
        test = against_baselines(model, windows, series.frequency, windows_that_fit(model))
        info = info.model_copy(update={"test": test})
    return Imported(info, model, relevant(architecture, arguments))


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


def _read_series(
    request: Request, code: CodeBase, needed: list[str], resolved: Resolved
) -> _Series:
    """Read the data, ask for all that is still unknown, and bring the channels in order."""
    frequency = None
    if request.frequency is not None:
        try:
            frequency = Frequency.parse(request.frequency)
        except FrequencyError as error:
            raise ImporterError(f"--frequency: {error}") from None
    arguments, chosen = resolved.arguments, request.channels is not None
    if request.data is None:
        require(needed, resolved, code)
        if request.channels is None or frequency is None or request.scaler is None:
            raise ImporterError(
                "without --data, its channels' names, spacing and scale have to come from "
                "--channels, --frequency, --mean and --std"
            )
        count = arguments.setdefault("enc_in", Argument(len(request.channels), "--channels"))
        if count.value != len(request.channels):
            raise ImporterError(
                f"--channels: expected {count.value} names, got {len(request.channels)}"
            )
        if len(set(request.channels)) != len(request.channels):
            raise ImporterError("--channels: a name occurs twice")
        return _Series(request.channels, frequency, None)
    table = read_table(request.data, arguments, request.channels, frequency)
    needed = [*needed, "split"]
    if needs_target(table, arguments, code, chosen=chosen):
        needed.append("target")
    else:
        arguments.pop("target", None)
    require(needed, resolved, code)
    table = arrange(table, arguments, code, chosen=chosen)
    arguments.setdefault("enc_in", Argument(len(table.channels), request.data.name))
    return _Series(table.channels, table.frequency, table)


def _describe(
    config: ForecasterConfig, series: _Series, scaler: Scaler | None, arguments: Arguments
) -> CheckpointInfo:
    source = None
    table = series.table
    if table is not None and table.path is not None:
        splits = split_rows(str(arguments["split"].value), len(table), config.context)
        splits.check(len(table), config.context, config.horizon)
        source = DataSource(
            path=table.path.resolve(),
            sha256=sha256(table.path),
            timestamp_column=table.timestamp_column,
            rows=len(table),
            splits=splits,
        )
        if scaler is None:
            scaler = fit(table.values[slice(*splits.train)])
    return CheckpointInfo.model_validate(
        {
            "config": config,
            "channels": series.channels,
            "frequency": str(series.frequency),
            "scaler": scaler,
            "data": source,
        }
    )
