"""Searches for settings of a training."""
