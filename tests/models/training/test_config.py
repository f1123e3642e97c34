import pytest
from pydantic import ValidationError

from foretell.models.data.errors import DataError
from foretell.models.training.config import TrainingConfig


def config(**values: object) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"arch": "patchtst", "context": 96, "horizon": 24} | values
    )


def test_texts_are_read_as_a_command_line_gives_them() -> None:
    read = config(context="96", learning_rate="0.2", splits="0.6,0.2,0.2")
    assert (read.context, read.learning_rate, read.splits) == (96, 0.2, (0.6, 0.2, 0.2))


def test_the_family_is_one() -> None:
    with pytest.raises(ValidationError, match=r"expected one of autoformer, .*patchtst"):
        config(arch="oracle")


@pytest.mark.parametrize("splits", ["ett", "0.7,0.3", "a,b,c", 3, (0.7, 0.1)])
def test_splits_that_are_none(splits: object) -> None:
    with pytest.raises(ValidationError, match="expected ett-hourly, ett-minute or three"):
        config(splits=splits)


def test_patience_can_stop_a_training_of_default_length() -> None:
    assert config().patience < config().epochs


def test_split() -> None:
    assert config(splits="ett-hourly").split(17420).test == (11520 - 96, 14400)
    assert config(splits="ett-minute").split(69680).test == (46080 - 96, 57600)
    assert config(splits="0.6,0.2,0.2").split(1000).train == (0, 600)


def test_split_without_a_window() -> None:
    with pytest.raises(DataError, match="validation split: rows 44 to 160 hold no window"):
        config().split(200)
