"""Errors of the bundle contract."""


class BundleError(ValueError):
    """A bundle, or a name that should lead to one, does not keep the contract."""


class NoRoomError(BundleError):
    """There is no room for a copy of a bundle; later there may be."""
