from io import StringIO

from rich.console import Console

from foretell.bundle.manifest import Accuracy
from foretell.training.progress import ConsoleProgress, EpochReport

ERRORS = Accuracy(mse=0.5, mae=0.75)
REPORT = EpochReport(3, 0.25, 0.5, ERRORS, best_epoch=3, learning_rate=0.01, seconds=1.5)


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = StringIO()
    with ConsoleProgress(Console(file=text)) as progress:
        progress.warned("a: its offset is large")
        progress.noted("learning rate 0.005")
        progress.compared(40, {"the last value": Accuracy(mse=2, mae=1), "the last day": ERRORS})
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        progress.stepped(1, 0.3)
        progress.finished_epoch(REPORT)
        progress.finished_epoch(REPORT._replace(epoch=4))
    assert text.getvalue().splitlines() == [
        "warning: a: its offset is large",
        "learning rate 0.005",
        "validation: 40 windows, MSE / MAE of repeating the last value 2.0000 / 1.0000, "
        "the last day 0.5000 / 0.7500",
        "going on after epoch 2 of 5",
        "epoch 3/5  train 0.2500  validation 0.5000 / 0.7500  best so far",
        "epoch 4/5  train 0.2500  validation 0.5000 / 0.7500",
    ]


def test_a_bar_on_a_terminal() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with ConsoleProgress(console) as progress:
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        progress.stepped(4, 0.3)
        progress.bars.refresh()
    assert "epoch 3/5" in text.getvalue()
    assert "24/50" in text.getvalue()
    assert "loss 0.3000" in text.getvalue()


def test_the_time_left_is_that_of_the_whole_training() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    clock = iter(range(100))
    with ConsoleProgress(console) as progress:
        progress.bars.get_time = lambda: float(next(clock))
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        (task,) = progress.bars.tasks
        for step in range(1, 4):
            progress.stepped(step, 0.3)
        # A step takes as many ticks as the clock is looked at; the epochs done before took none.
        assert task.remaining == 27
        assert task.time_remaining is not None
        assert task.time_remaining >= 27


def test_one_progress_can_follow_two_trainings() -> None:
    text = StringIO()
    with ConsoleProgress(Console(file=text)) as progress:
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=0)
        progress.finished_epoch(REPORT)
        progress.started(epochs=2, steps_per_epoch=4, epochs_done=0)
        progress.finished_epoch(REPORT._replace(epoch=1))
    assert "epoch 1/2" in text.getvalue()
