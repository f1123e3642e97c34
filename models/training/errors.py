"""Errors of training."""


class TrainingError(ValueError):
    """Settings that cannot be trained with, or a training that cannot go on."""
