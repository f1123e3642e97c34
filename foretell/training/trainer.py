"""The training loop."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from foretell.bundle.results import Accuracy
from foretell.models.batches import are_recomputed, parts_that_fit, windows_that_fit
from foretell.models.config import ForecasterConfig
from foretell.models.forecaster import Forecaster
from foretell.models.layers.encoder import Encoder
from foretell.training.config import Precision, TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.kept import keep
from foretell.training.losses import judge_of, loss_of, over_known
from foretell.training.progress import EpochReport, Progress
from foretell.training.schedules import schedule_of
from foretell.training.windows import Batch, Windows

_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
_REPORT_EVERY = 10


@dataclass
class Best:
    """The weights with the lowest validation loss so far, and their epoch."""

    epoch: int = 0
    loss: float = math.inf
    weights: dict[str, Tensor] = field(default_factory=dict)


def choose_device(settings: TrainingConfig) -> torch.device:
    """The device to train on.

    Raises:
        TrainingError: the device is missing, or does not support the precision.
    """
    available = torch.cuda.is_available()
    if settings.device == "cuda" and not available:
        raise TrainingError("device: torch finds no GPU for cuda")
    name = "cuda" if available and settings.device != "cpu" else "cpu"
    if name == "cpu" and settings.precision == "float16":
        raise TrainingError("precision: float16 needs a GPU; use float32 or bfloat16")
    return torch.device(name)


def choose_precision(settings: TrainingConfig, device: torch.device) -> Precision:
    """The precision of the training; `auto` is bfloat16 on a GPU that computes in it."""
    if settings.precision != "auto":
        return settings.precision
    reduced = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if reduced else "float32"


def seed_everything(seed: int, epoch: int) -> None:
    """Seed all generators for an epoch; epoch 0 initialises the model.

    The numbers of an epoch do not depend on earlier epochs, so a resumed training draws the same.
    """
    derived = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    random.seed(derived)
    np.random.seed(derived)
    torch.manual_seed(derived)


def _average(decay: float, means: list[Tensor], weights: list[Tensor], steps: Tensor) -> None:
    """Update a moving average of weights; over the first 1 / (1 - decay) steps it is the mean.

    With the full decay from the start, the first weights would dominate the average for about as
    many steps.
    """
    seen = int(steps)
    update = get_ema_multi_avg_fn(min(decay, seen / (1 + seen)))  # type: ignore[no-untyped-call]
    update(means, weights, steps)


class Trainer:
    """Minimises the training loss, with early stopping by the validation loss.

    All random numbers, including the first weights, depend on the seed of the settings.

    Args:
        config: Configuration of the model.
        train: Training windows; moved to `device`.
        validation: Validation windows; moved to `device`.
        settings: Settings of the training.
        device: Device to train on.
    """

    def __init__(
        self,
        config: ForecasterConfig,
        train: Windows,
        validation: Windows,
        settings: TrainingConfig,
        device: torch.device,
    ) -> None:
        seed_everything(settings.seed, 0)
        self.model = model = config.build()
        if settings.network is not None:
            keep(model, settings.network)
        model.to(device)
        windows = min(settings.batch_size, len(train))
        if are_recomputed(model, windows):
            for module in model.modules():
                if isinstance(module, Encoder):
                    module.recomputes, module.parts = True, parts_that_fit(model, windows)
        self.train = train.to(device)
        self.validation = validation.to(device)
        self.settings = settings
        self.device = device
        self.precision = choose_precision(settings, device)
        self.steps_per_epoch = math.ceil(len(train) / settings.batch_size)
        self.steps = settings.epochs * self.steps_per_epoch
        self.learning_rate = settings.learning_rate or model.config.learning_rate
        self.loss = loss_of(
            settings.loss, huber_delta=settings.huber_delta, quantile=settings.quantile
        )
        self.judge = judge_of(settings.loss, quantile=settings.quantile)
        if model.head is not None:
            self.loss = self.judge = model.head.loss
        self.optimizer = _OPTIMIZERS[settings.optimizer](
            [weight for weight in model.parameters() if weight.requires_grad],
            lr=self.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.scheduler = schedule_of(
            settings.schedule,
            self.optimizer,
            steps=self.steps,
            steps_per_epoch=self.steps_per_epoch,
            warm_up=settings.warm_up,
        )
        self.average: AveragedModel | None = None
        self._constants: list[tuple[Tensor, Tensor]] = []
        if settings.ema_decay is not None:
            running = partial(_average, settings.ema_decay)
            self.average = AveragedModel(self.model, multi_avg_fn=running, use_buffers=True)
            trained = model.state_dict().keys()
            pairs = zip(self.average.module.named_buffers(), model.buffers(), strict=True)
            self._constants = [(mean, own) for (name, mean), own in pairs if name not in trained]
        # Only float16 has a range so small that gradients must be scaled.
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        self.epoch = 0
        self.best = Best()

    @property
    def finished(self) -> bool:
        """Whether all epochs are run or the validation loss has stopped falling."""
        stalled = self.epoch - self.best.epoch >= self.settings.patience
        return self.epoch >= self.settings.epochs or stalled

    def run_epoch(self, progress: Progress) -> EpochReport:
        """Learn from every training window once, then measure the validation loss.

        Raises:
            TrainingError: the loss is no longer finite.
        """
        began, rate = time.perf_counter(), self.optimizer.param_groups[0]["lr"]
        self.epoch += 1
        seed_everything(self.settings.seed, self.epoch)
        order = torch.randperm(len(self.train)).to(self.device)
        total, seen = torch.zeros((), device=self.device), 0.0
        # Batch norms of a kept network must not learn, and its decoder has no dropout.
        self.model.train(self.settings.network is None)
        for step, indices in enumerate(torch.split(order, self.settings.batch_size)):
            batch = self.train.batch(indices)
            total += self._step(step, batch) * batch.weight
            seen += batch.weight
            if seen and (step % _REPORT_EVERY == 0 or step + 1 == self.steps_per_epoch):
                progress.stepped(step + 1, total.item() / seen)
        judged = self.judged
        judged.eval()
        validation_loss, validation = self._validate(judged)
        loss = total.item() / seen
        if not math.isfinite(loss + validation_loss):
            raise TrainingError(
                f"the loss is not finite after epoch {self.epoch}; try a lower learning rate"
            )
        if validation_loss < self.best.loss:
            weights = {name: t.detach().clone() for name, t in judged.state_dict().items()}
            self.best = Best(self.epoch, validation_loss, weights)
        report = EpochReport(
            epoch=self.epoch,
            train_loss=loss,
            validation_loss=validation_loss,
            validation=validation,
            best_epoch=self.best.epoch,
            learning_rate=rate,
            seconds=time.perf_counter() - began,
        )
        progress.finished_epoch(report)
        return report

    @property
    def judged(self) -> Forecaster:
        """The model that is validated, with averaged weights if there are any."""
        return self.model if self.average is None else cast("Forecaster", self.average.module)

    def _validate(self, model: Forecaster) -> tuple[float, Accuracy]:
        """The mean validation loss and the errors, over all validation windows."""
        total, seen = torch.zeros(3, dtype=torch.float64, device=self.device), 0.0
        unit = self.validation.unit
        with torch.inference_mode():
            for batch in self.validation.batches(windows_that_fit(model)):
                predicted = model.predict(batch.inputs)
                forecast = predicted.forecast.double() / unit
                scaled = batch._replace(target=batch.target.double() / unit)
                found = [over_known(self.judge, predicted.trained_output.double(), batch)]
                found += [
                    over_known(one, forecast, scaled)
                    for one in (functional.mse_loss, functional.l1_loss)
                ]
                total += torch.stack(found) * batch.weight
                seen += batch.weight
        loss, mse, mae = (total / seen).tolist()
        return loss, Accuracy(mse=mse, mae=mae)

    def _step(self, step: int, batch: Batch) -> Tensor:
        """Update the weights with one batch, and return its validation loss before the update."""
        done = (self.epoch - 1) * self.steps_per_epoch + step
        reduced = self.precision != "float32"
        kind = getattr(torch, self.precision)
        with torch.autocast(self.device.type, dtype=kind, enabled=reduced):
            forecast, penalty = self._forecast(batch, done / self.steps)
        loss = over_known(self.loss, forecast.float(), batch)
        self.optimizer.zero_grad()
        torch.autograd.backward(self.grad_scaler.scale(loss + penalty.float()))
        if self.settings.grad_clip is not None:
            self.grad_scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), self.settings.grad_clip)
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        self.scheduler.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
            # An average would round places of channels or keys, and breaks infinities in masks.
            for mean, constant in self._constants:
                mean.copy_(constant)
        with torch.no_grad():
            return over_known(self.judge, forecast.float(), batch)

    def _forecast(self, batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
        """Output to learn from, and a penalty to add to its loss.

        A kept network runs as it is served. In training it might read true values of the horizon.
        """
        if self.settings.network is None:
            return self.model.forecast_to_learn(batch.inputs, batch.future, progress)
        output = self.model.predict(batch.inputs).trained_output
        return output, output.new_zeros(())

    def restore_best(self) -> None:
        """Load the best weights into the model, in eval mode."""
        self.model.load_state_dict(self.best.weights)
        self.model.eval()

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        stateful = self._stateful()
        return {
            "epoch": self.epoch,
            "best": vars(self.best),
            **{name: each.state_dict() for name, each in stateful.items()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume after the epoch of a `state`."""
        self.epoch = state["epoch"]
        self.best = Best(**state["best"])
        for name, each in self._stateful().items():
            each.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Any]:
        average = {} if self.average is None else {"average": self.average}
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "grad_scaler": self.grad_scaler,
        } | average
