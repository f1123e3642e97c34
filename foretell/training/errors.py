"""Errors of training."""


class TrainingError(ValueError):
    """Settings do not allow a training, or a training cannot go on."""


class ResumeError(TrainingError):
    """A training cannot resume from the saved state."""
