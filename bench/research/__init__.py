"""Measurements of hours or days: scripts whose results are kept with the code."""
