"""Errors of training."""


class TrainingError(ValueError):
    """Settings that cannot be trained with, or a training that cannot go on."""


class ResumeError(TrainingError):
    """The state of an unfinished training that this one cannot go on from."""
