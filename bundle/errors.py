"""Errors of the bundle contract."""


class BundleError(ValueError):
    """A bundle, or a name that should lead to one, does not keep the contract."""


class TimestampError(ValueError):
    """A timestamp that is not ISO 8601 or lies outside the years 1 to 9999."""


class FrequencyError(ValueError):
    """A text that names no frequency, or timestamps that follow none."""
