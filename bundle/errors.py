"""Errors of the bundle contract."""


class BundleError(ValueError):
    """A bundle, its name or its version breaks the contract."""


class NoRoomError(BundleError):
    """The disk has no room for a copy of a bundle; a later attempt may succeed."""
