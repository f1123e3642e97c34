"""Mechanisms of attention, each in a file (`docs/guides/mechanisms.md`)."""
