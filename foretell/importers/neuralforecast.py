"""Models that NeuralForecast (Nixtla/neuralforecast) saved with `nf.save`.

Univariate models do not depend on names of series, so they forecast any series of their frequency.
Scalers of series or windows, and RevIN within them, become window norms
(`foretell.models.layers.window_norms`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from foretell.bundle.covariates import Covariates
from foretell.importers import tslib_keys
from foretell.importers.arguments import Argument, Values, with_provenance
from foretell.importers.errors import ImporterError, explained
from foretell.importers.keys import KeyMap, Row, load_weights, rows
from foretell.importers.neuralforecast_exogenous import (
    LISTS,
    of_series,
    read_covariates,
    with_categories,
)
from foretell.importers.neuralforecast_families import FAMILIES, Family
from foretell.importers.neuralforecast_folder import CONFIGURATION, Member, read_folder
from foretell.importers.neuralforecast_losses import (
    IMPLICIT_ROWS,
    LossSpec,
    implicit_parameters,
    read_loss,
)
from foretell.importers.saved import Request, SavedModel
from foretell.models.config import ARCHITECTURES
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

_SCALERS = {None: None, "identity": None, "revin": "decoupled"}
_SCALERS |= {name: name for name in ("standard", "robust", "minmax", "minmax1", "invariant")}
# Scalers of each series. Here they scale the rows that the model reads, as norms named `local-…`.
_LOCAL = ("standard", "robust", "robust-iqr", "minmax")
# Prefixes of tensors that are not weights.
_LOSSES = ("loss.", "valid_loss.")
# Prefix of the projection of past covariates, which a model without any may have.
_PAST = "hist_exog_projection."


def read(request: Request) -> SavedModel:
    """Read a model of a folder that `nf.save` wrote.

    Raises:
        ImporterError: it cannot be imported; the message has the reason, or the models to choose
            from.
    """
    found = read_folder(request.file, request.member)
    try:
        return _read(found, request)
    except (TypeError, ValueError) as error:
        raise ImporterError(f"{found.file}: {explained(error)}") from None


def _read(found: Member, request: Request) -> SavedModel:
    family = FAMILIES.get(found.kind)
    if family is None:
        raise ImporterError(f"a {found.kind}; expected one of {', '.join(FAMILIES)}")
    _check_served(found)
    covariates = read_covariates(found, {name: one.covariates for name, one in FAMILIES.items()})
    loss = read_loss(found, several=family.several, levels=request.arguments.get("levels"))
    values = _values(found, family)
    series = values["n_series"] if family.several else 1
    names = _names(found.settings, series, several=family.several)
    covariates = of_series(covariates, None if names is None else names.value)
    local, scaler = found.settings.get("local_scaler_type"), _SCALERS[values["scaler_type"]]
    if local is not None:
        _check_local(local, values["scaler_type"], loss)
        scaler = f"local-{local}"
    inner = family.inner_norm(values)
    if loss.head not in (None, "quantiles") and inner is not None:
        # The inner norm is undone on the outputs of the network, not on parameters from them.
        scaler = scaler or "identity"
    fields = _fields(values, family, covariates) | {
        "window_norm": "+".join(name for name in (scaler, inner) if name) or None,
        "head": loss.head,
        "levels": loss.levels,
    }
    if covariates.future:
        # The trained parameters of `decoupled` are for the way out.
        fields["covariate_norm"] = "standard" if scaler == "decoupled" else scaler
    model = ARCHITECTURES[family.architecture].model_validate(fields).build()
    channels = model.config.channels
    state = _prepare(found, family, loss, channels, past=bool(covariates.past))
    state = with_categories(state, covariates, family.covariates)
    keys = family.rows + _norm_rows(scaler, inner)
    lists = {name: ", ".join(map(str, found.arguments.get(name) or ())) for name in LISTS.values()}
    shown = {name: columns for name, columns in lists.items() if columns}
    arguments = with_provenance({**values, "loss": loss.title, **shown}, found.file.name)
    if loss.chosen is not None and loss.levels is not None:
        state |= implicit_parameters(found, loss.levels)
        keys += IMPLICIT_ROWS
        arguments["levels"] = loss.chosen
    if local is not None:
        # The library may scale by more rows, so the imported arguments show the difference.
        arguments["local_scaler_type"] = Argument(f"{local}, of the rows it reads", CONFIGURATION)
    load_weights(model, KeyMap(f"{found.kind} of NeuralForecast", keys), state)
    family.finish(model, values)
    past = tuple(each.name for each in covariates.past)
    if past and request.channels is not None:
        raise ImporterError("--channels: hist_exog_list names channels of this model; leave it out")
    if names is not None:
        names = names._replace(value=names.value + past)
    return SavedModel(model.eval(), arguments, names, _frequency(found.settings), unscaled=True)


def _check_served(found: Member) -> None:
    """Refuse models that do not read the series, or scale it in another way."""
    arguments = found.arguments
    if arguments.get("exclude_insample_y"):
        raise ImporterError("exclude_insample_y: it does not read the series; train without it")
    if arguments.get("scaler_type") not in _SCALERS:
        known = ", ".join(filter(None, _SCALERS))
        raise ImporterError(f"scaler_type {arguments.get('scaler_type')}: expected one of {known}")


def _check_local(local: str, scaler: str | None, loss: LossSpec) -> None:
    """Refuse a `local_scaler_type` that has no norm here, or that other settings exclude."""
    place = f"local_scaler_type {local}"
    if local not in _LOCAL:
        raise ImporterError(f"{place}: expected one of {', '.join(_LOCAL)}; train with one of them")
    if _SCALERS[scaler] is not None:
        raise ImporterError(
            f"{place} around scaler_type {scaler}: one of the two is served; train with one"
        )
    if loss.head is not None and loss.levels is None:
        raise ImporterError(
            f"{place} around a distribution: the library undoes it on samples alone; train with "
            "scaler_type, which is undone on the distribution"
        )


def _values(found: Member, family: Family) -> dict[str, Any]:
    """The arguments that the model depends on."""
    names = ["h", "input_size", *family.fields, "scaler_type"]
    if missing := [name for name in names if name not in found.arguments]:
        raise ImporterError(f"its header lacks {', '.join(missing)}")
    return {name: found.arguments[name] for name in names}


def _prepare(
    found: Member, family: Family, loss: LossSpec, channels: int, *, past: bool
) -> dict[str, Tensor]:
    """The weights under their keys, with parameters and quantiles in our order."""
    state = {}
    for key, each in found.state.items():
        if key.startswith(_LOSSES) or (key.startswith(_PAST) and not past):
            continue
        if key.startswith("scaler."):
            # The first scale and shift are those of the series; exogenous columns follow it.
            each = each.flatten()[:1].expand(channels).contiguous()
        elif key == tslib_keys.GLOBAL_TOKENS:
            each = each.flatten(0, 2)
        elif any(part in key for part in family.output):
            each = _by_parameter(each, loss.order)
        state[key] = each
    return state


def _by_parameter(rows: Tensor, order: Sequence[int]) -> Tensor:
    """Reorder rows from `[steps, parameters]` to `[parameters, steps]`."""
    if len(rows) % len(order):
        # The size is wrong; `load_weights` refuses the key.
        return rows
    steps = rows.reshape(-1, len(order), *rows.shape[1:])[:, list(order)]
    return steps.transpose(0, 1).reshape(rows.shape)


def _fields(values: Values, family: Family, covariates: Covariates) -> dict[str, Any]:
    """Our configuration without the window norm."""
    series = values["n_series"] if family.several else 1
    return {
        "channels": series + len(covariates.past),
        "targets": tuple(range(series)) if covariates.past else None,
        "covariates": covariates if covariates != Covariates() else None,
        "horizon": values["h"],
        # The library's default is three horizons.
        "context": values["input_size"] if values["input_size"] > 0 else 3 * values["h"],
        **{ours: values[name] for name, ours in family.fields.items() if ours is not None},
        **family.configure(values),
    }


def _names(settings: Mapping[str, Any], series: int, *, several: bool) -> Argument | None:
    """Names of the series: saved ids of series that are read together, or the target column."""
    names: tuple[str, ...] = (str(settings.get("target_col")),)
    if several:
        found = settings.get("uids")
        while isinstance(found, Mapping) and "values" not in found:
            found = found.get("data")
        names = tuple(map(str, found["values"])) if isinstance(found, Mapping) else ()
    return Argument(names, CONFIGURATION) if len(names) == series else None


def _frequency(settings: Mapping[str, Any]) -> Argument | None:
    """The frequency of the folder; None for a number of steps or an alias of another library."""
    try:
        return Argument(str(Frequency.parse(str(settings.get("freq")))), CONFIGURATION)
    except FrequencyError:
        return None


def _norm_rows(scaler: str | None, inner: str | None) -> list[Row]:
    """Keys of the trained parameters of window norms."""
    outer_name = "window_norm.outer." if inner else "window_norm."
    inner_name = "window_norm.inner." if scaler else "window_norm."
    return rows(
        f"""
        scaler.revin_*             {outer_name}*
        model.revin_layer.affine_* {inner_name}*
        """
    )
