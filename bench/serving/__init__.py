"""Servers under load: ours, and what else one could take."""
