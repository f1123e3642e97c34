import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.bundle.results import Accuracy
from foretell.data.panel import Panel
from foretell.models import batches
from foretell.models.inputs import Inputs
from foretell.models.layers.encoder import Encoder
from foretell.training.accuracy import evaluate
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.preparation import prepare
from foretell.training.progress import Progress
from foretell.training.trainer import (
    Trainer,
    choose_device,
    choose_precision,
    seed_everything,
)
from tests.training.conftest import Recorder

CPU = torch.device("cpu")


def trainer_of(settings: TrainingConfig, panel: Panel) -> Trainer:
    prepared = prepare(settings, panel)
    return Trainer(prepared.config, prepared.train, prepared.validation, settings, CPU)


Make = Callable[..., Trainer]


@pytest.fixture
def make(settings: TrainingConfig, panel: Panel) -> Make:
    """Makes trainers by the settings with changes."""
    return lambda **given: trainer_of(settings.model_copy(update=given), panel)


def weights_of(trainer: Trainer, but: str = "-") -> torch.Tensor:
    """All weights and buffers except those whose names end with `but`."""
    state = trainer.model.state_dict().items()
    return torch.cat([each.flatten() for name, each in state if not name.endswith(but)])


def test_loss_falls(make: Make, settings: TrainingConfig) -> None:
    trainer = make()
    recorder = Recorder()
    while not trainer.finished:
        trainer.run_epoch(recorder)
    assert recorder.epochs == [1, 2, 3, 4]
    assert recorder.reports[-1].train_loss < recorder.reports[0].train_loss / 2
    assert recorder.steps[:3] == [1, trainer.steps_per_epoch, 1]
    last = recorder.reports[-1]
    assert last.validation == evaluate(trainer.model, trainer.validation, 64)
    assert 0 < last.learning_rate < settings.learning_rate
    assert last.seconds > 0


def test_activations_over_the_limit_are_computed_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainers = [make()]
    monkeypatch.setattr(batches, "_KEPT", 0)
    trainers.append(make())
    found = []
    for trainer in trainers:
        (encoder,) = (each for each in trainer.model.modules() if isinstance(each, Encoder))
        found.append((encoder.recomputes, encoder.parts))
        trainer.run_epoch(Recorder())
    assert found == [(False, 1), (True, 1)]
    assert torch.equal(*map(weights_of, trainers))


def test_parts_of_a_large_batch_are_computed_again_one_by_one(
    settings: TrainingConfig, panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"patch": 4, "stride": 2, "d_model": 8, "d_ff": 8, "dropout": 0}
    fields = settings.model_dump() | {"arch": "patchtst", "model": own}
    chosen = TrainingConfig.model_validate(fields)
    trainers = [trainer_of(chosen, panel)]
    monkeypatch.setattr(batches, "LIMIT", 2**16)
    # Activations below the limit are kept, so a batch is not divided.
    trainers.append(trainer_of(chosen, panel))
    monkeypatch.setattr(batches, "_KEPT", 0)
    trainers.append(trainer_of(chosen, panel))
    parts, losses = [], []
    for trainer in trainers:
        (encoder,) = (each for each in trainer.model.modules() if isinstance(each, Encoder))
        parts.append(encoder.parts)
        losses.append(trainer.run_epoch(Recorder()).train_loss)
    assert parts[:2] == [1, 1]
    assert parts[2] > 1
    assert losses == [losses[0], losses[0], pytest.approx(losses[0], rel=1e-4)]


@pytest.mark.parametrize("head", ["normal", "student-t", "quantiles"])
def test_a_head_learns_by_its_own_loss(settings: TrainingConfig, panel: Panel, head: str) -> None:
    fields = settings.model_dump(exclude={"loss"})
    own = {"patch": 4, "stride": 2, "d_model": 8, "d_ff": 8, "encoder_layers": 1, "head": head}
    if head == "quantiles":
        own["levels"] = "0.1,0.5,0.9"
    fields |= {"arch": "patchtst", "model": own}
    trainer = trainer_of(TrainingConfig.model_validate(fields), panel)
    recorder = Recorder()
    while not trainer.finished:
        trainer.run_epoch(recorder)
    first, *_, last = recorder.reports
    assert last.validation_loss < first.validation_loss
    with torch.inference_mode():
        batch = next(trainer.validation.batches(10_000))
        found = trainer.model.predict(batch.inputs).distribution
    assert trainer.model.head is not None
    loss = trainer.model.head.loss(found, batch.target)
    assert last.validation_loss == pytest.approx(float(loss), rel=1e-4)
    assert last.validation == evaluate(trainer.model, trainer.validation, 64)


def test_counts_are_trained_unscaled_by_likelihood_only(
    settings: TrainingConfig, panel: Panel
) -> None:
    fields = settings.model_dump(exclude={"loss"})
    own = {"patch": 4, "head": "negative-binomial", "window_norm": "magnitude"}
    fields |= {"arch": "huggingface-patchtst", "model": own}
    (table,) = panel.tables
    panel = Panel((replace(table, values=table.values.round()),))
    counted = prepare(TrainingConfig.model_validate(fields), panel)
    assert set(counted.scaler.mean) == {0}
    assert set(counted.scaler.std) == {1}
    with pytest.raises(TrainingError, match="loss: with a head it is the likelihood"):
        prepare(TrainingConfig.model_validate(fields | {"loss": "mae"}), panel)


def test_one_seed_one_result(make: Make) -> None:
    first, second = make(), make()
    other = make(seed=1)
    for trainer in (first, second, other):
        random.random()
        torch.rand(3)
        trainer.run_epoch(Progress())
    assert torch.equal(weights_of(first), weights_of(second))
    assert not torch.equal(weights_of(first), weights_of(other))


def test_stops_when_validation_stalls(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter([3.0, 2.0, 2.0, 4.0])
    trainer = make(epochs=9, patience=2)
    monkeypatch.setattr(trainer, "_validate", lambda _: (next(errors), Accuracy(mse=1, mae=1)))
    kept = []
    while not trainer.finished:
        trainer.run_epoch(Progress())
        kept.append(weights_of(trainer).clone())
    assert (trainer.epoch, trainer.best.epoch, trainer.best.loss) == (4, 2, 2.0)
    trainer.restore_best()
    assert torch.equal(weights_of(trainer), kept[1])
    assert not trainer.model.training


def test_a_diverging_loss_is_an_error(make: Make) -> None:
    trainer = make()
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(torch.inf)
    with pytest.raises(TrainingError, match="not finite after epoch 1; try a lower learning rate"):
        trainer.run_epoch(Progress())


@pytest.mark.parametrize(("loss", "judged"), [("huber", "mse"), ("mse", "mse"), ("mae", "mae")])
def test_epochs_are_compared_by_the_chosen_metric(make: Make, loss: str, judged: str) -> None:
    trainer = make(loss=loss, epochs=1)
    report = trainer.run_epoch(Progress())
    accuracy = evaluate(trainer.model, trainer.validation, 7)
    assert report.validation_loss == pytest.approx(getattr(accuracy, judged), rel=1e-6)


def test_each_part_of_the_recipe_changes_what_is_learned(make: Make) -> None:
    recipes: list[dict[str, object]] = [
        {"loss": "mse"},
        {"huber_delta": 0.01},
        {"loss": "mae"},
        {"loss": "quantile", "quantile": 0.9},
        {"schedule": "one-cycle"},
        {"schedule": "constant"},
        {"warm_up": 0.5},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"weight_decay": 0.1},
        {"grad_clip": 1e-3},
        {"ema_decay": 0.9},
    ]
    found = []
    for recipe in [{}, *recipes]:
        trainer = make(**recipe)
        trainer.run_epoch(Progress())
        trainer.restore_best()
        found.append(weights_of(trainer))
    for i, weights in enumerate(found):
        assert not any(torch.equal(weights, other) for other in found[:i])


def test_clipping_bounds_the_gradient(make: Make) -> None:
    trainer = make(grad_clip=1e-3)
    trainer.run_epoch(Progress())
    gradients = [weight.grad for weight in trainer.model.parameters() if weight.grad is not None]
    assert torch.cat([one.flatten() for one in gradients]).norm() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(("decay", "batch_size"), [(0.5, 64), (0.999, 8)])
def test_mean_of_weights_is_validated_and_kept(make: Make, decay: float, batch_size: int) -> None:
    """With a decay near 1 the mean of few steps is their arithmetic mean."""
    trainer = make(ema_decay=decay, batch_size=batch_size)
    steps: list[torch.Tensor] = []
    after = trainer.scheduler.step

    def step() -> None:
        steps.append(weights_of(trainer, but="num_batches_tracked"))
        after()

    trainer.scheduler.step = step  # type: ignore[method-assign]
    report = trainer.run_epoch(Progress())
    expected = torch.stack(steps).mean(dim=0)
    if decay == 0.5:
        expected = steps[0]
        for weights in steps[1:]:
            expected = 0.5 * expected + 0.5 * weights
    trainer.restore_best()
    kept = weights_of(trainer, but="num_batches_tracked")
    assert len(steps) > 2
    torch.testing.assert_close(kept, expected, rtol=0, atol=1e-4)
    judged = evaluate(trainer.model, trainer.validation, 100).mse
    assert report.validation_loss == pytest.approx(judged, rel=1e-5)


def test_mean_of_weights_keeps_the_target_channel(settings: TrainingConfig, panel: Panel) -> None:
    (table,) = panel.tables
    wide = replace(table, channels=tuple("abcdefgh"), values=table.values.repeat(4, axis=1))
    given = {"ema_decay": 0.9, "target": ("h",), "batch_size": 8}
    trainer = trainer_of(settings.model_copy(update=given), Panel((wide,)))
    report = trainer.run_epoch(Progress())
    assert dict(trainer.judged.named_buffers())["_targets"].tolist() == [7]
    trainer.restore_best()
    judged = evaluate(trainer.model, trainer.validation, 100).mse
    assert report.validation_loss == pytest.approx(judged, rel=1e-5)


def test_a_mean_of_weights_reads_the_same_keys(make: Make, settings: TrainingConfig) -> None:
    model = {**settings.model, "attention": {"mechanism": "local", "window": 2}}
    given = {"ema_decay": 0.9, "model": model, "batch_size": 8}
    trainer = make(**given)
    trainer.run_epoch(Progress())
    kept = trainer.model.state_dict()
    for (name, mean), own in zip(
        trainer.judged.named_buffers(), trainer.model.buffers(), strict=True
    ):
        assert name in kept or torch.equal(mean, own), name


def test_the_rate_suits_the_width(make: Make, settings: TrainingConfig) -> None:
    def rate(**given: object) -> float:
        return make(**given).learning_rate

    assert rate() == 0.01
    narrow, wide = settings.model | {"d_model": 16}, settings.model | {"d_model": 128}
    assert rate(learning_rate=None, model=narrow) == 2e-3
    assert rate(learning_rate=None, model=wide) == pytest.approx(4e-4)
    assert rate(learning_rate=None, arch="dlinear", model={}) == 5e-3


def test_seeds_every_generator() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), np.random.random(), torch.rand(1).item()

    draws = []
    for seed, epoch in ((0, 1), (0, 1), (0, 2), (1, 1)):
        seed_everything(seed, epoch)
        draws.append(draw())
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


@pytest.mark.parametrize(
    ("device", "precision", "on_gpu", "without"),
    [
        ("cpu", "auto", "cpu", "cpu"),
        ("auto", "auto", "cuda", "cpu"),
        ("auto", "float16", "cuda", "precision: float16 needs a GPU"),
        ("cuda", "auto", "cuda", "device: torch finds no GPU"),
        ("cpu", "float16", "precision: float16 needs a GPU", "precision: float16 needs a GPU"),
    ],
)
@pytest.mark.parametrize("has_gpu", [True, False])
def test_device(
    settings: TrainingConfig,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    precision: str,
    on_gpu: str,
    without: str,
    has_gpu: bool,
) -> None:
    given = settings.model_copy(update={"device": device, "precision": precision})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    try:
        found = choose_device(given).type
    except TrainingError as error:
        found = str(error)
    assert found.startswith(on_gpu if has_gpu else without)


@pytest.mark.parametrize(
    ("precision", "device", "supported", "chosen"),
    [
        ("auto", "cuda", True, "bfloat16"),
        ("auto", "cuda", False, "float32"),
        ("auto", "cpu", True, "float32"),
        ("float32", "cuda", True, "float32"),
        ("float16", "cuda", True, "float16"),
    ],
)
def test_precision(
    settings: TrainingConfig,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    device: str,
    supported: bool,
    chosen: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: supported)
    given = settings.model_copy(update={"precision": precision})
    assert choose_precision(given, torch.device(device)) == chosen


def test_models_receive_target_and_training_progress(
    make: Make, settings: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, calls = make(), []
    learn = trainer.model.learn

    def listen(
        inputs: Inputs, target: torch.Tensor, progress: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append((target.shape[1], progress))
        return learn(inputs, target, progress)

    monkeypatch.setattr(trainer.model, "learn", listen)
    trainer.run_epoch(Progress())
    steps = trainer.steps_per_epoch
    horizon = settings.horizon
    assert calls == [(horizon, i / (steps * settings.epochs)) for i in range(steps)]


def test_auxiliary_losses_of_a_model_are_trained(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, drawn = make(), make()
    learn = drawn.model.learn

    def penalised(*given: object) -> tuple[torch.Tensor, torch.Tensor]:
        forecast, _ = learn(*given)
        return forecast, sum(weight.square().sum() for weight in drawn.model.parameters())

    monkeypatch.setattr(drawn.model, "learn", penalised)
    first, second = (trainer.run_epoch(Progress()) for trainer in (plain, drawn))
    assert weights_of(drawn).norm() < weights_of(plain).norm()
    # Only the error is reported.
    assert second.train_loss < 10 * first.train_loss
