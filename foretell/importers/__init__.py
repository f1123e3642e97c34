"""Checkpoints of other code bases, read as ours."""
