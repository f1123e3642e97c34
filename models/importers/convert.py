"""From a published checkpoint file to a model and all that is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from foretell.bundle.checksums import sha256
from foretell.bundle.errors import FrequencyError
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Scaler
from foretell.models.architectures import build
from foretell.models.checkpoint import CheckpointInfo
from foretell.models.data.scaler import fit
from foretell.models.data.source import DataSource
from foretell.models.data.table import Table
from foretell.models.data.windows import Windows
from foretell.models.evaluation import against_baselines
from foretell.models.forecaster import Forecaster, ForecasterConfig
from foretell.models.importers.arguments import Facts, Known, read_arguments
from foretell.models.importers.configure import configure, used
from foretell.models.importers.data import arrange, needs_target, read_table, split_rows
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.infer import infer, recognise
from foretell.models.importers.layouts import Source
from foretell.models.importers.reading import read_state
from foretell.models.importers.resolve import ask, needs, resolve
from foretell.models.importers.script import read_script
from foretell.models.importers.setting import is_setting, parse_setting
from foretell.models.importers.sources import CODE_BASES, CodeBase
from foretell.models.importers.weights import fill

_ROWS = 2048


@dataclass(frozen=True)
class Request:
    """What to adopt, and what is known about it.

    Attributes:
        file: The checkpoint.
        source: The code base it comes from.
        architecture: The architecture.
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
    source: Source
    architecture: str
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
        facts: The arguments it depends on, each with what told it.
    """

    info: CheckpointInfo
    model: Forecaster
    facts: Facts


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
    code = CODE_BASES[request.source]
    state = read_state(request.file)
    told = infer(state, recognise(state, request.source, request.architecture))
    facts = resolve(
        code,
        request.architecture,
        told,
        flags=read_arguments(dict(request.arguments), lambda name: f"--{name}"),
        script=read_script(request.script) if request.script else None,
        setting=_setting(request),
        defaults=request.defaults,
    )
    series = _read_series(request, code, needs(request.architecture, told), facts)
    config = configure(request.architecture, code, told, facts)
    model = build(config)
    fill(model, told.layout, state)
    model.eval()
    if request.scaler is not None and len(request.scaler.mean) != config.channels:
        raise ImporterError(
            f"--mean and --std have {len(request.scaler.mean)} numbers, the model has "
            f"{config.channels} channels"
        )
    info = _describe(config, series, request.scaler, facts)
    if series.table is not None and info.data is not None:
        windows = Windows(
            series.table,
            info.data.splits.test,
            config.context,
            config.horizon,
            info.scaler,
            config.calendar,
        )
        # PatchTST folds the channels into the batch.
        batch = max(1, min(256, _ROWS // config.channels))
        test = against_baselines(model, windows, series.frequency, batch)
        info = info.model_copy(update={"test": test})
    return Imported(info, model, used(request.architecture, facts))


def _setting(request: Request) -> Facts:
    if request.setting is not None:
        return parse_setting(Path(request.setting).name)
    folder = request.file.resolve().parent.name
    return parse_setting(folder, "its folder's name") if is_setting(folder) else {}


def _read_series(request: Request, code: CodeBase, missing: list[str], facts: Facts) -> _Series:
    """Read the data, ask for all that is still unknown, and bring the channels in order."""
    frequency = None
    if request.frequency is not None:
        try:
            frequency = Frequency.parse(request.frequency)
        except FrequencyError as error:
            raise ImporterError(f"--frequency: {error}") from None
    chosen = request.channels is not None
    if request.data is None:
        ask(missing, facts, code)
        if request.channels is None or frequency is None or request.scaler is None:
            raise ImporterError(
                "without --data, its channels' names, spacing and scale have to come from "
                "--channels, --frequency, --mean and --std"
            )
        count = facts.setdefault("enc_in", Known(len(request.channels), "--channels"))
        if count.value != len(request.channels):
            raise ImporterError(
                f"--channels: expected {count.value} names, got {len(request.channels)}"
            )
        if len(set(request.channels)) != len(request.channels):
            raise ImporterError("--channels: a name occurs twice")
        return _Series(request.channels, frequency, None)
    table = read_table(request.data, facts, request.channels, frequency)
    missing = [*missing, "split"]
    if needs_target(table, facts, code, chosen=chosen):
        missing.append("target")
    else:
        facts.pop("target", None)
    ask(missing, facts, code)
    table = arrange(table, facts, code, chosen=chosen)
    facts.setdefault("enc_in", Known(len(table.channels), request.data.name))
    return _Series(table.channels, table.frequency, table)


def _describe(
    config: ForecasterConfig, series: _Series, scaler: Scaler | None, facts: Facts
) -> CheckpointInfo:
    source = None
    table = series.table
    if table is not None and table.path is not None:
        splits = split_rows(str(facts["split"].value), len(table), config.context)
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
