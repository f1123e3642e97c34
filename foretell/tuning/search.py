"""A search for the settings of a training, by the error of its validation split."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.errors import RefusedError
from foretell.settings.given import Settings
from foretell.training.errors import TrainingError
from foretell.training.preparation import forecaster_config, prepare
from foretell.training.progress import Progress
from foretell.training.trainer import Trainer, choose_device
from foretell.tuning.space import (
    Range,
    Space,
    Values,
    fields_of,
    first_of,
    settings_with,
    training_with,
)

# Trainings before the first one is pruned, and epochs of each before it can be pruned.
_STARTUP, _WARM_UP = 5, 3


class _OutOfTimeError(Exception):
    pass


class _Deadline(Progress):
    def __init__(self, until: float) -> None:
        self.until = until

    def stepped(self, step: int, loss: float) -> None:  # noqa: ARG002
        if time.monotonic() > self.until:
            raise _OutOfTimeError


class Search:
    """A study in a file, which can be resumed.

    Args:
        given: Fixed settings.
        space: Settings to search, with their values.
        panel: The data.
        journal: File of the study.

    Raises:
        RefusedError: the file belongs to another search.
    """

    def __init__(self, given: Settings, space: Space, panel: Panel, journal: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.given = given
        self.space = space
        self.panel = panel
        self.study = self._open(journal)

    def _open(self, journal: Path) -> optuna.Study:
        study = optuna.create_study(
            study_name="foretell",
            storage=JournalStorage(JournalFileBackend(str(journal))),
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(_STARTUP, _WARM_UP),
        )
        identity = {
            "given": {name: str(value) for name, value in self.given.items()},
            "space": {name: repr(values) for name, values in self.space.items()},
            "data": self.panel.fingerprint(),
        }
        for name, value in identity.items():
            if study.user_attrs.get(name, value) != value:
                raise RefusedError(
                    f"{journal}: a search with other {'data' if name == 'data' else 'settings'}; "
                    "start afresh with --restart"
                )
            study.set_user_attr(name, value)
        # Another seed for each resumption, so that choices are not repeated.
        drawn = len(study.trials)
        seed = int(self.given.get("seed", 0))
        study.sampler = optuna.samplers.TPESampler(seed=seed + drawn)
        if not drawn:
            study.enqueue_trial(self._defaults())
        return study

    def _defaults(self) -> dict[str, Any]:
        """Default settings for the first training, so that no search ends with a worse one."""
        fields = fields_of(self.given["arch"])
        known = {
            name: fields[name].default
            for name, values in self.space.items()
            if name in fields
            and (isinstance(values, Range) or fields[name].default in values)
            and fields[name].default is not None
        }
        if "learning_rate" not in known and "learning_rate" in self.space:
            training = training_with(self.given, {**first_of(self.space), **known})
            config = forecaster_config(
                training,
                self.panel.channels,
                self.panel.frequency,
                covariates=self.panel.covariates,
            )
            known["learning_rate"] = config.learning_rate
        return known

    def run(
        self, minutes: float, trainings: int | None, tell: Callable[[FrozenTrial], None]
    ) -> None:
        """Train with one choice of settings after another.

        Args:
            minutes: Time limit from now.
            trainings: Largest number of trainings; unlimited if None.
            tell: Callback after each training.
        """
        until = time.monotonic() + minutes * 60
        self.study.optimize(
            lambda trial: self._train(trial, until),
            n_trials=trainings,
            timeout=minutes * 60,
            callbacks=[lambda _, trial: tell(trial)],
        )

    def best(self) -> dict[str, Any]:
        """The settings with the lowest validation error, including the fixed ones.

        Raises:
            RefusedError: no training has a validation error.
        """
        if not self.ended:
            refused = [trial.user_attrs.get("refused") for trial in self.study.trials]
            if refused and all(refused):
                raise RefusedError(f"every choice of settings failed; the last: {refused[-1]}")
            raise RefusedError("no training ended an epoch; give the search more minutes")
        return settings_with(self.given, self.study.best_params)

    @property
    def ended(self) -> list[FrozenTrial]:
        """Trainings with a validation error."""
        return self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def _train(self, trial: Trial, until: float) -> float:
        error = math.inf
        drawn = {name: _draw(trial, name, values) for name, values in self.space.items()}
        try:
            settings = training_with(self.given, drawn)
            prepared = prepare(settings, self.panel)
            trainer = Trainer(
                prepared.config,
                prepared.train,
                prepared.validation,
                settings,
                choose_device(settings),
            )
            while not trainer.finished:
                report = trainer.run_epoch(_Deadline(until))
                if report.epoch == report.best_epoch:
                    error = report.validation.mse
                trial.report(report.validation.mse, report.epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned
        except _OutOfTimeError:
            trial.study.stop()
            if not trainer.best.epoch:
                raise optuna.TrialPruned from None
        except (DataError, RefusedError, TrainingError) as refused:
            # The settings are incompatible, or the training diverged.
            trial.set_user_attr("refused", str(refused))
            raise optuna.TrialPruned from None
        return error


def _draw(trial: Trial, name: str, values: Range | Values) -> Any:  # noqa: ANN401 - of any setting
    if isinstance(values, Range):
        return trial.suggest_float(name, values.low, values.high, log=values.log)
    return trial.suggest_categorical(name, values)
