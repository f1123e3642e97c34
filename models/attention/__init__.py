"""Mechanisms of attention, each in a file: its config and its module (`docs/guides/mechanisms.md`)."""
