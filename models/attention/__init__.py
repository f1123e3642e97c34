"""Mechanisms of attention, each in a file with its config and module (`docs/guides/mechanisms.md`)."""
