"""The training loop."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from foretell.models.batches import windows_that_fit
from foretell.models.data.windows import Batch, Windows
from foretell.models.evaluation import evaluate
from foretell.models.forecaster import Forecaster, Inputs
from foretell.models.training.config import Precision, TrainingConfig
from foretell.models.training.errors import TrainingError
from foretell.models.training.progress import EpochReport, Progress

_WARM_UP = 0.1
_REPORT_EVERY = 10


@dataclass
class Best:
    """The weights with the lowest validation error so far, and the epoch they are from."""

    epoch: int = 0
    mse: float = math.inf
    weights: dict[str, Tensor] = field(default_factory=dict)


def choose_device(settings: TrainingConfig) -> torch.device:
    """The device to train on.

    Raises:
        TrainingError: it is not there, or cannot do the precision.
    """
    available = torch.cuda.is_available()
    if settings.device == "cuda" and not available:
        raise TrainingError("device: cuda was asked for, but torch finds no GPU")
    name = "cuda" if available and settings.device != "cpu" else "cpu"
    if name == "cpu" and settings.precision not in ("auto", "float32"):
        raise TrainingError(f"precision: {settings.precision} needs a GPU; use float32")
    return torch.device(name)


def choose_precision(settings: TrainingConfig, device: torch.device) -> Precision:
    """The precision to train in; `auto` is bfloat16 on a GPU that computes in it."""
    if settings.precision != "auto":
        return settings.precision
    reduced = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if reduced else "float32"


def seed_everything(seed: int, epoch: int) -> None:
    """Seed all generators for an epoch; epoch 0 is the making of the model.

    What an epoch draws depends on nothing before it, so a resumed training draws the same.
    """
    derived = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    random.seed(derived)
    np.random.seed(derived)
    torch.manual_seed(derived)


def learning_rate_at(step: int, steps: int, peak: float) -> float:
    """Learning rate of a step: a linear rise over the first tenth, then half a cosine to zero.

    Args:
        step: From 0.
        steps: Of the whole training.
        peak: The largest rate.
    """
    warm_up = max(round(steps * _WARM_UP), 1)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(steps - warm_up, 1)))


class Trainer:
    """Adam on the mean squared error, stopped early by the validation error.

    The published halving of the learning rate every epoch ends most of the learning after three
    epochs whatever the number of epochs; the cosine uses all of them.

    Args:
        model: Trained in place, on `device`.
        train: Windows to learn from; moved to `device`.
        validation: Windows to be stopped by; moved to `device`.
        settings: Of the training.
        device: Where to train.
    """

    def __init__(
        self,
        model: Forecaster,
        train: Windows,
        validation: Windows,
        settings: TrainingConfig,
        device: torch.device,
    ) -> None:
        self.model = model.to(device)
        self.train = train.to(device)
        self.validation = validation.to(device)
        self.settings = settings
        self.device = device
        self.precision = choose_precision(settings, device)
        self.steps_per_epoch = math.ceil(len(train) / settings.batch_size)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        # Only float16 has so little range that gradients have to be scaled into it.
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        self.epoch = 0
        self.best = Best()

    @property
    def finished(self) -> bool:
        """Whether all epochs are run or the validation error has stopped falling."""
        stalled = self.epoch - self.best.epoch >= self.settings.patience
        return self.epoch >= self.settings.epochs or stalled

    def run_epoch(self, progress: Progress) -> EpochReport:
        """Learn from every training window once, then measure the validation error.

        Raises:
            TrainingError: the loss is not finite any more.
        """
        self.epoch += 1
        seed_everything(self.settings.seed, self.epoch)
        order = torch.randperm(len(self.train)).to(self.device)
        total = torch.zeros((), device=self.device)
        self.model.train()
        for step, indices in enumerate(torch.split(order, self.settings.batch_size)):
            total += self._step(step, self.train.batch(indices)) * len(indices)
            if step % _REPORT_EVERY == 0 or step + 1 == self.steps_per_epoch:
                seen = step * self.settings.batch_size + len(indices)
                progress.stepped(step + 1, total.item() / seen)
        self.model.eval()
        validation = evaluate(self.model, self.validation, windows_that_fit(self.model)).mse
        loss = total.item() / len(order)
        if not math.isfinite(loss + validation):
            raise TrainingError(
                f"the loss is not finite after epoch {self.epoch}; try a lower learning rate"
            )
        if validation < self.best.mse:
            weights = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
            self.best = Best(self.epoch, validation, weights)
        report = EpochReport(self.epoch, loss, validation, self.best.epoch)
        progress.finished_epoch(report)
        return report

    def _step(self, step: int, batch: Batch) -> Tensor:
        """Update the weights by one batch and return its loss."""
        done = (self.epoch - 1) * self.steps_per_epoch + step
        steps = self.settings.epochs * self.steps_per_epoch
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(done, steps, self.settings.learning_rate)
        reduced = self.precision != "float32"
        kind = getattr(torch, self.precision)
        with torch.autocast(self.device.type, dtype=kind, enabled=reduced):
            forecast, penalty = self.model.learn(Inputs(*batch[:3]), batch.target, done / steps)
        loss = functional.mse_loss(forecast.float(), batch.target)
        self.optimizer.zero_grad()
        torch.autograd.backward(self.grad_scaler.scale(loss + penalty.float()))
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        return loss.detach()

    def restore_best(self) -> None:
        """Give the model its best weights, in eval mode."""
        self.model.load_state_dict(self.best.weights)
        self.model.eval()

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on."""
        return {
            "epoch": self.epoch,
            "best": vars(self.best),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "grad_scaler": self.grad_scaler.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on after the epoch whose `state` this is."""
        self.epoch = state["epoch"]
        self.best = Best(**state["best"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.grad_scaler.load_state_dict(state["grad_scaler"])
