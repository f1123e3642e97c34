"""Architectures, each in a file: its config and its network (`docs/guides/architectures.md`)."""
