"""A bundle as an MLflow model: a table of histories in, a table of forecasts out."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretell.bundle import checksums, example, layout
from foretell.bundle import manifest as manifests
from foretell.bundle.manifest import Manifest
from foretell.errors import RefusedError
from foretell.predict.in_process import OpenBundle
from foretell.signed import accepted

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

# First time of the input example if the bundle has no example.
_START = np.datetime64("2024-01-01")
_SERIES, _TIME = "unique_id", "ds"


def write(bundle: Path, folder: Path) -> Path:
    """Write a bundle as an MLflow model.

    Args:
        bundle: Folder of the bundle.
        folder: Folder of the model, which must not exist.

    Returns:
        The folder.

    Raises:
        BundleError: the bundle is damaged.
        RefusedError: the folder exists.
    """
    from mlflow import pyfunc

    manifest = manifests.read(bundle)
    checksums.check(bundle, manifest.files)
    # A model whose bundle is signed may be loaded where signatures are required.
    extras = "cpu,signing" if (bundle / layout.SIGNATURE).is_file() else "cpu"
    if folder.exists():
        raise RefusedError(f"{folder}: exists already")
    hidden = folder.with_name(f".{folder.name}.writing")
    try:
        pyfunc.save_model(
            hidden,
            loader_module=__name__,
            data_path=str(bundle),
            signature=_signature(manifest),
            input_example=_example(bundle, manifest),
            pip_requirements=[f"foretell[{extras}]=={metadata.version('foretell')}"],
            metadata={"model": manifest.name, "version": manifest.version},
        )
        hidden.rename(folder)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return folder


class BundleModel:
    """The model that MLflow calls for predictions.

    Args:
        folder: Folder of the bundle.

    Raises:
        BundleError: the bundle is damaged, or is not signed as `FORETELL_SIGNED_BY` requires.
        StartError: a key of that variable cannot be used.
        RefusedError: the bundle does not work here.
    """

    def __init__(self, folder: Path) -> None:
        # MLflow names the folder. An open bundle has a copy of its own.
        with accepted(folder, anywhere=True) as accepted_folder:
            bundle = OpenBundle(accepted_folder)
        self._client = bundle.client
        # MLflow never closes models. At the end of Python, threads that closing needs have ended.
        weakref.finalize(self, bundle.close).atexit = False

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Forecast every series of a table.

        Args:
            model_input: Table in long form: a column for each channel, `ds`, and `unique_id` for
                several series.
            params: Options `horizon`, `quantiles` and `missing` of
                `foretell.client.Client.forecast`.

        Returns:
            A row for each series and step, with the same columns and those of quantiles.

        Raises:
            ForetellError: the table does not fit the model.
        """
        given = dict(params or {})
        if not len(given.get("quantiles", ())):
            given.pop("quantiles", None)
        return self._client.forecast(model_input, **given)


def _load_pyfunc(folder: str) -> BundleModel:
    """Load a model; MLflow calls this function by its name."""
    return BundleModel(Path(folder))


def _signature(manifest: Manifest) -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    def columns(names: Sequence[str], *, timed: bool) -> Schema:
        given = [
            ColSpec("string", _SERIES, required=False),
            ColSpec("datetime", _TIME, required=timed),
        ]
        return Schema([*given, *(ColSpec("double", name) for name in names)])

    return ModelSignature(
        columns(manifest.channels, timed=manifest.calendar is not None),
        columns(manifest.targets, timed=False),
        ParamSchema(
            [
                ParamSpec("horizon", "long", manifest.horizon),
                ParamSpec("quantiles", "double", [], shape=(-1,)),
                ParamSpec("missing", "string", "error"),
            ]
        ),
    )


def _example(bundle: Path, manifest: Manifest) -> pd.DataFrame:
    """The bundle's example, or a synthetic one."""
    found = example.read(bundle, manifest)
    if found is not None:
        values, times = found.history[-manifest.context :], found.timestamps[-manifest.context :]
        frame = pd.DataFrame(values, columns=list(manifest.channels))
        frame.insert(0, _TIME, pd.to_datetime(times, format="ISO8601", utc=False))
        return frame
    values = np.zeros((manifest.context, len(manifest.channels)))
    frame = pd.DataFrame(values + manifest.scaler.training.mean, columns=list(manifest.channels))
    frame.insert(0, _TIME, manifest.step.steps_from(_START, manifest.context))
    return frame
