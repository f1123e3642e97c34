from io import StringIO

from rich.console import Console

from foretell.models.training.progress import ConsoleProgress, EpochReport

REPORT = EpochReport(epoch=3, train_loss=0.25, validation_loss=0.5, best_epoch=3)


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = StringIO()
    with ConsoleProgress(Console(file=text)) as progress:
        progress.warned("a: its offset is large")
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        progress.stepped(1, 0.3)
        progress.finished_epoch(REPORT)
        progress.finished_epoch(REPORT._replace(epoch=4))
    assert text.getvalue().splitlines() == [
        "warning: a: its offset is large",
        "going on after epoch 2 of 5",
        "epoch 3/5  train 0.2500  validation 0.5000  best so far",
        "epoch 4/5  train 0.2500  validation 0.5000",
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


def test_one_progress_can_follow_two_trainings() -> None:
    text = StringIO()
    with ConsoleProgress(Console(file=text)) as progress:
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=0)
        progress.finished_epoch(REPORT)
        progress.started(epochs=2, steps_per_epoch=4, epochs_done=0)
        progress.finished_epoch(REPORT._replace(epoch=1))
    assert "epoch 1/2" in text.getvalue()
